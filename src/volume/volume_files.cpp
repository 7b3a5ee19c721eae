#include "volume_files.hpp"

#include "corbd/core/log.hpp"

namespace corbd::volume {

std::string name(Loss loss) { return loss == Loss::key ? "Ceph key" : "record"; }

std::string cause(Loss loss) {
  return loss == Loss::changed_record ? "its file was replaced, perhaps by a backup" : "its file was gone or damaged";
}

task<bool> VolumeFiles::has_lost_key(Volume& volume, Record record) {
  if (volume.credentials.known().empty()) co_return false;
  auto key = co_await ports_.records.load_key(record);
  if (!key) co_return true;
  // A key that was not written yet is not lost.
  if (volume.credentials.to_be_saved()) co_return false;
  co_return !volume.credentials.has({record.user, std::move(*key)});
}

task<std::optional<Loss>> VolumeFiles::loss_of(Volume& volume, std::optional<Record> there) {
  if (!there) co_return Loss::record;
  if (volume.writes.refused) co_return std::nullopt;
  Record record = with_real_paths(std::move(*there), ports_.files);
  // A record that is written without a key keeps the user of its file, so that user is not compared.
  if (volume.credentials.known().empty()) record.user = volume.record->user;
  if (encode(record) != encode(*volume.record)) co_return Loss::changed_record;
  const bool lost_key = co_await has_lost_key(volume, std::move(record));
  co_return lost_key ? std::optional(Loss::key) : std::nullopt;
}

task<result<>> VolumeFiles::write_again(Volume& volume, std::optional<Loss> loss) {
  if (loss) volume.credentials.file_lost();
  const Step again = step::WriteRecord{*volume.record};
  const auto written = co_await steps_.run(volume, again, Wish(Healed{}));
  if (!loss) co_return written;
  const std::string file = loss == Loss::key ? "key" : "record";
  if (written)
    log::warning(file + ".restored",
                 {{"volume", volume.id}, {"why", cause(*loss) + "; it is written again from memory"}});
  else
    log::warning(file + ".not_written", {{"volume", volume.id}, {"error", written.error().text}});
  co_return written;
}

task<std::optional<Loss>> VolumeFiles::find_loss(Volume& volume, Until until) {
  auto there = co_await ports_.records.peek_at(volume.id, until);
  if (!there) co_return std::nullopt;
  co_return co_await loss_of(volume, std::move(*there));
}

}  // namespace corbd::volume
