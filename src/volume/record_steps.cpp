#include "record_steps.hpp"

#include <utility>

#include "corbd/core/log.hpp"

namespace corbd::volume {

task<result<>> RecordSteps::write(Volume& volume, const step::WriteRecord& step) {
  volume.writes.under_way = step.record;
  auto saved = co_await save(volume, step.record);
  volume.writes.under_way.reset();
  // The write may have happened all the same, so the caller must not forget the volume.
  if (!saved && final_for_caller(saved.error().code)) saved = Error{errc::state_write, saved.error().text};
  const bool refused_again = std::exchange(volume.writes.refused, !saved) && volume.writes.refused;
  if (saved || !step.may_fail) volume.writes.unsure = !saved && saved.error().code != errc::state_newer;
  // The first refusal may be chance, so the step fails and is tried again.
  if (!saved && !(step.may_fail && refused_again)) co_return saved;
  if (!saved) log::warning("record.not_written", {{"volume", volume.id}, {"error", saved.error().text}});
  volume.record = step.record;
  co_return result<>();
}

task<result<>> RecordSteps::save(Volume& volume, Record record) {
  const Write write(writes_);
  // With two keys, key_worked() saves the one that the cluster takes.
  if (!volume.key.undecided())
    if (auto saved = co_await save_key(volume); !saved) co_return saved;
  co_return co_await ports_.records.save(std::move(record));
}

task<result<>> RecordSteps::save_key(Volume& volume) {
  if (!volume.key.to_be_saved()) co_return result<>();
  const Write write(writes_);
  auto saved = co_await ports_.records.save_key(volume.id, volume.key.known());
  if (saved) volume.key.saved();
  co_return saved;
}

/// If the key file cannot be written, healing goes on, and the next write of the
/// record tries again.
task<> RecordSteps::key_worked(Volume& volume) {
  volume.key.worked();
  if (auto saved = co_await save_key(volume); !saved)
    log::warning("key.not_written", {{"volume", volume.id}, {"error", saved.error().text}});
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
  volume.key.record_dropped(wish);
  co_return result<>();
}

}  // namespace corbd::volume
