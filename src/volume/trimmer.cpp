#include "trimmer.hpp"

#include <algorithm>

#include "corbd/core/log.hpp"
#include "corbd/host/values.hpp"

namespace corbd::volume {
namespace {

constexpr std::chrono::minutes kLooksForTurnsEvery{1};

std::uint64_t reads_and_writes_of(const Volume& volume) {
  const auto figures = figures_of(volume);
  return figures.of(device::RequestKind::read).requests + figures.of(device::RequestKind::write).requests;
}

bool is_trimmable(const Volume& volume) { return volume.record && !volume.record->stagings.empty(); }

}  // namespace

duration Trimmer::every_look() const { return std::min<duration>(kLooksForTurnsEvery, config_.trim_every / 4); }

void Trimmer::start() {
  if (config_.trim_every > std::chrono::seconds::zero()) rounds_.start(every_look(), every_look());
}

bool Trimmer::helper_works(const std::string& id) const { return ports_.files.busy(ports_.records.busy_file(id)); }

TrimCandidate Trimmer::candidate(const Volume& volume, Seen& seen) {
  const Record& record = *volume.record;
  const Staging& staging = record.stagings.front();
  const std::uint64_t requests = reads_and_writes_of(volume);
  const auto since = std::chrono::duration_cast<std::chrono::seconds>(clock_.now() - seen.counted_at).count();
  TrimCandidate of{.id = volume.id};
  of.block = record.use.block;
  of.read_only = record.reads_only() || wants_read_only(staging.capability);
  of.in_pieces = host::trims_in_pieces(staging.capability.fstype);
  of.discards = record.source.serving.trim;
  of.staged = health_of(volume) == Health::staged && !record.adopting && !volume.server.is_tombstone();
  of.operation = !volume.operations.empty() || record.freeze || helper_works(volume.id);
  // A cluster that answers nobody would otherwise get a hanging helper for each of its volumes.
  if (!hung_.empty() && !helper_works(hung_)) hung_.clear();
  of.hangs = hung_;
  // A volume that was staged again counts from zero.
  const std::uint64_t more = requests - std::min(requests, seen.requests);
  of.requests_per_second = more / static_cast<std::uint64_t>(std::max<std::int64_t>(1, since));
  if (volume.server.link() != nullptr) {
    of.in_flight = volume.server.link()->in_flight();
    of.oldest = volume.server.link()->oldest();
  } else if (const auto devices = find_devices(volume, ports_); devices && devices->size() == 1) {
    of.in_flight = devices->front().waiting;
  }
  of.trimmed_at = volume.history.counts.trimmed_at;
  seen.requests = requests;
  seen.counted_at = clock_.now();
  return of;
}

/// Whether the volume's turn has come, and nothing else needs the volume. Notes the reason for people.
bool Trimmer::may_begin(Volume& volume, Seen& seen) {
  const auto of = candidate(volume, seen);
  const std::string never = why_never_trimmed(of);
  if (!never.empty() || !trim_is_due(of, seen.turn, config_.trim_every, clock_.wall())) {
    volume.why_not_trimmed = never.empty() ? seen.failed : never;
    return false;
  }
  // The reason for the wait stays.
  if (clock_.now() < seen.turn.held_until) return false;
  volume.why_not_trimmed = why_trim_waits(of);
  if (volume.why_not_trimmed.empty()) return true;
  seen.turn.held_until = clock_.now() + kTrimHeldFor;
  return false;
}

/// Returns the first volume that may be trimmed.
std::optional<std::string> Trimmer::next() {
  std::erase_if(seen_, [this](const auto& one) {
    const Volume* volume = volumes_.find(one.first);
    return volume == nullptr || !is_trimmable(*volume);
  });
  std::optional<std::string> chosen;
  for (const auto& [id, volume] : volumes_)
    if (is_trimmable(*volume) && may_begin(*volume, seen_[id]) && !chosen) chosen = id;
  return chosen;
}

void Trimmer::end_turn(Seen& seen, Volume& volume, const Work& work) {
  seen.turn.ended = trim_turn(volume.id, config_.trim_every, clock_.wall());
  seen.turn.from = 0;
  seen.failed.clear();
  volume.history.counts.trimmed_at = clock_.wall();
  log::info("filesystem.trimmed", {{"volume", volume.id}, {"bytes", work.bytes}, {"pieces", work.pieces}});
}

/// A filesystem that cannot discard is tried once in each turn: its next stage may bring a device that does.
void Trimmer::failed(Seen& seen, Volume& volume, const Error& why) {
  volume.why_not_trimmed = why.text;
  const bool hangs = helper_works(volume.id);
  if (hangs) hung_ = volume.id;
  if (why.code == errc::unimplemented) seen.turn.ended = trim_turn(volume.id, config_.trim_every, clock_.wall());
  // Its helper still trims that piece to its end.
  seen.turn.held_until = clock_.now() + (hangs ? kTrimHeldFor : kTrimRetriedAfter);
  if (std::exchange(seen.failed, why.text) != why.text)
    log::warning("filesystem.not_trimmed", {{"volume", volume.id}, {"error", why.text}});
}

/// Trims one volume, until its end or until something else needs it. A turn that is cut short goes on where it was.
task<> Trimmer::trim(std::string id, std::shared_ptr<CancelScope> leaving) {
  Work work;
  for (;;) {
    Volume* volume = volumes_.find(id);
    if (volume == nullptr || !is_trimmable(*volume) || !may_begin(*volume, seen_[id])) co_return;
    const auto began = clock_.now();
    const std::uint64_t before = volume->history.counts.trimmed_bytes;
    Trimmed piece{volume->record->stagings.front().path, seen_[id].turn.from};
    const auto outcome = co_await want_(id, Wish(std::move(piece)), {});
    volume = volumes_.find(id);
    if (leaving->cancelled() || volume == nullptr) co_return;
    Seen& seen = seen_[id];
    if (!outcome) co_return failed(seen, *volume, outcome.error());
    ++work.pieces;
    work.bytes += volume->history.counts.trimmed_bytes - before;
    seen.turn.from = volume->next_trim;
    if (volume->next_trim == 0) co_return end_turn(seen, *volume, work);
    const auto pause = trim_pause(clock_.now() - began);
    if (co_await sleep_until(control_, clock_, clock_.now() + pause, leaving.get()) == Waited::cancelled) co_return;
  }
}

task<> Trimmer::look(std::shared_ptr<CancelScope> leaving) {
  while (!leaving->cancelled()) {
    const auto id = next();
    if (!id) break;
    co_await trim(*id, leaving);
  }
}

}  // namespace corbd::volume
