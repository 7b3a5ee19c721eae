#include "record_steps.hpp"

#include <utility>

#include "corbd/core/log.hpp"

namespace corbd::volume {
task<result<>> RecordSteps::write(Volume& volume, const step::WriteRecord& step) {
  Record record = step.record;
  if (volume.credentials.goes_with_record()) record.user = volume.credentials.known().user;
  volume.writes.under_way = record;
  volume.writes.on_disk.tried(record);
  auto saved = co_await save(volume, record);
  if (saved) volume.writes.on_disk.written(record);
  volume.writes.under_way.reset();
  // The write may have happened all the same, so the caller must not forget the volume.
  if (!saved && final_for_caller(saved.error().code)) saved = Error{errc::state_write, saved.error().text};
  const bool refused_again = std::exchange(volume.writes.refused, !saved) && volume.writes.refused;
  if (saved || !step.may_fail) volume.writes.unsure = !saved && saved.error().code != errc::state_newer;
  // The first refusal may be chance, so the step fails and is tried again.
  if (!saved && !(step.may_fail && refused_again)) co_return saved;
  if (!saved) log::warning("record.not_written", {{"volume", volume.id}, {"error", saved.error().text}});
  volume.record = std::move(record);
  co_return result<>();
}

task<result<>> RecordSteps::save(Volume& volume, Record record) {
  const Write write(writes_);
  if (!volume.credentials.goes_with_record()) co_return co_await ports_.records.save(std::move(record));
  auto saved = co_await ports_.records.save_with_key(std::move(record), volume.credentials.known().key);
  if (saved) volume.credentials.saved();
  co_return saved;
}

/// If its files cannot be written, healing goes on, and the next write of the record tries again.
task<> RecordSteps::keep_credential(Volume& volume) {
  if (!volume.credentials.take_worked() || !volume.record) co_return;
  const Write write(writes_);
  const Credential& known = volume.credentials.known();
  Record record = *volume.record;
  record.user = known.user;
  volume.writes.on_disk.tried(record);
  const auto saved = co_await ports_.records.save_with_key(record, known.key);
  if (!saved) {
    log::warning("key.not_written", {{"volume", volume.id}, {"error", saved.error().text}});
    co_return;
  }
  volume.credentials.saved();
  volume.writes.on_disk.written(record);
  volume.record = std::move(record);
}

task<result<>> RecordSteps::drop(Volume& volume, const Wish& wish) {
  const Write write(writes_);
  auto key = co_await ports_.records.drop_key(volume.id);
  if (!key) co_return key;
  auto dropped = co_await ports_.records.drop(volume.id);
  if (!dropped) co_return dropped;
  volume.record.reset();
  volume.usage.last.reset();
  volume.writes.unsure = false;
  volume.writes.on_disk.dropped();
  volume.credentials.record_dropped(wish);
  volume.unused_key.reset();
  volume.secret_unread.clear();
  volume.device.mapped_as.reset();
  co_return result<>();
}

}  // namespace corbd::volume
