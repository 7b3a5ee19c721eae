#include "earlier_agents.hpp"

#include <set>
#include <utility>

#include "corbd/core/backoff.hpp"
#include "corbd/core/log.hpp"

namespace corbd::rbd {

EarlierAgents::EarlierAgents(executor control, Clock& clock, BlockingPool& files, Gate& gate, const Config& config,
                             Incarnations& incarnations, Renewals& renewals)
    : control_(std::move(control)),
      clock_(clock),
      files_(files),
      gate_(gate),
      config_(config),
      incarnations_(incarnations),
      renewals_(renewals) {}

/// Callable from any thread.
EarlierAgents::Files EarlierAgents::load(const std::string& dir, std::int64_t now, const std::string& boot_id) {
  auto incarnations = load_incarnations(dir, now, boot_id);  // first, because it makes the folder
  return {load_short_entries(dir), std::move(incarnations)};
}

void EarlierAgents::read_at_start() {
  auto read = load(config_.incarnations_dir, seconds_since_1970(clock_), config_.boot_id);
  if (read.incarnations && !config_.predecessor_running) merge_fenced(config_.incarnations_dir, read.incarnations->all);
  if (auto known = take_in(read); !known) read_again_because_of(known.error());
}

task<result<>> EarlierAgents::read(bool again) {
  auto known = co_await read_once();
  if (!known && again) read_again_because_of(known.error());
  co_return known;
}

void EarlierAgents::stop() {
  stopped_ = true;
  pauses_.cancel();
}

task<result<>> EarlierAgents::read_once() {
  auto job = [dir = config_.incarnations_dir, now = seconds_since_1970(clock_),
              boot = config_.boot_id]() -> result<Files> { return load(dir, now, boot); };
  // A client of this agent that ends meanwhile is unknown afterwards, and its file may have been read.
  std::set<std::string> own;
  for (const auto& one : incarnations_.all())
    if (one.state != Incarnation::State::yields) own.insert(one.uuid);
  auto read = co_await files_.run(std::move(job), {}, "reading the incarnations");
  if (!read) co_return read.error();
  if (read->incarnations)
    std::erase_if(read->incarnations->all, [&](const Incarnation& one) { return own.contains(one.uuid); });
  co_return take_in(*read);
}

/// Takes everything that can be read, even if the rest cannot.
result<> EarlierAgents::take_in(const Files& read) {
  if (read.incarnations) incarnations_.take_over(read.incarnations->all, !config_.predecessor_running);
  // An agent that serves beside this one renews them as long as it lives.
  if (!config_.predecessor_running) {
    renewals_.take_notes(read.notes.all);
    // Fencing them again shows which entries end early, and notes that.
    if (read.notes.lost) incarnations_.doubt_entries();
  }
  if (!read.incarnations) return read.incarnations.error();
  if (read.notes.unread) return *read.notes.unread;
  if (unknown_) log::info("incarnations.read");
  unknown_.reset();
  return {};
}

/// Retries, because the cause may pass: no descriptor or memory is free, or the disk does not answer.
void EarlierAgents::read_again_because_of(const Error& failed) {
  unknown_ = with_context("cannot read which Ceph clients earlier agents had, so no image can be opened", failed);
  log::error(
      "incarnations.unreadable",
      {{"error", unknown_->text},
       {"effect", "the agent tries again, and opens no image until then"},
       {"hint",
        "if the file stays unreadable, blocklist the clients of earlier agents of this node (`ceph osd blocklist ls` "
        "shows whether they are), then move the file away"}});
  if (!std::exchange(reads_again_, true)) gate_.spawn(read_again());
}

task<> EarlierAgents::read_again() {
  for (std::uint32_t attempt = 0; unknown_ && !stopped_; ++attempt) {
    const auto pause = Backoff{}.after(attempt, uniform());
    static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + pause, &pauses_));
    if (unknown_ && !stopped_) static_cast<void>(co_await read_once());
  }
  reads_again_ = false;
}

}  // namespace corbd::rbd
