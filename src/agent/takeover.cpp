#include "takeover.hpp"

#include "corbd/core/log.hpp"
#include "corbd/core/process.hpp"
#include "corbd/plan/wish.hpp"

namespace corbd::agent {
namespace {

// The agent before waits for this, and serves meanwhile.
constexpr std::chrono::seconds kPreopenWithin{100};
// The agent before has given it up by then, and goes on with the next volume.
constexpr std::chrono::seconds kServesWithin{30};
// Other volumes wait for their healing. A try that goes on is no danger to them, and is repeated.
constexpr std::chrono::seconds kServedWithin{5};
// An agent that ended holds its lock a moment longer.
constexpr std::chrono::seconds kLockWithin{10};
constexpr std::chrono::milliseconds kLockAgain{50};

}  // namespace

Takeover::Takeover(executor control, Clock& clock, Parts parts)
    : control_(control), clock_(clock), parts_(std::move(parts)), serving_(std::move(control), clock) {}

task<result<>> Takeover::run(Fd before) {
  log::info("handover.waits", {{"for", "the agent that serves"}});
  auto unopened = co_await parts_.shell.preopen({clock_.now() + kPreopenWithin});
  if (!unopened) co_return unopened.error();
  handover::Taker taker(control_, clock_, std::move(before), std::move(*unopened));
  if (auto taken = co_await taker.run(*this); !taken) {
    // It may live, and hold the rest.
    if (taken.error().code != errc::not_found) {
      taker.leave();
      co_return taken;
    }
    log::warning("handover.failed",
                 {{"error", taken.error().text}, {"effect", "devices that were not given are healed"}});
  }
  if (!lock_)
    if (auto locked = co_await lock_alone(); !locked) co_return locked;
  static_cast<void>(co_await serving_.close({clock_.now() + kServedWithin}));
  co_await parts_.clusters.look_at_before(true);
  co_return result<>();
}

/// The agent before writes no record any more.
task<result<>> Takeover::take_lock(Fd lock) {
  lock_ = std::move(lock);
  auto note = [folder = parts_.state_dir, &held = lock_] { return note_lock_holder(folder, held); };
  // The note is for people only.
  if (const auto noted = co_await parts_.files.run(std::move(note), {}, "noting who has the lock"); !noted)
    log::warning("handover.lock_not_noted", {{"error", noted.error().text}});
  co_await parts_.clusters.look_at_before(false);
  co_return co_await parts_.shell.start();
}

void Takeover::take_listener(Fd socket, bool registered) {
  listeners_.add(std::move(socket));
  registered_ |= registered;
}

void Takeover::take_link(device::LinkSocket link, std::function<void()> served) {
  parts_.devices.take(link.device, link.volume_id, std::move(link.socket));
  serving_.spawn(serve(std::move(link.volume_id), std::move(served)));
}

task<> Takeover::serve(std::string volume_id, std::function<void()> served) {
  const auto done = co_await parts_.shell.want(volume_id, plan::Wish(plan::Healed{}), {clock_.now() + kServesWithin});
  if (!done)
    log::warning("handover.not_served",
                 {{"volume", volume_id}, {"error", done.error().text}, {"effect", "it is healed"}});
  served();
}

/// The agent before has ended, and gave nothing.
task<result<>> Takeover::lock_alone() {
  static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + parts_.starts_again_within));
  const auto until = clock_.now() + kLockWithin;
  for (;;) {
    auto lock = co_await parts_.files.run([folder = parts_.state_dir] { return lock_folder(folder); }, {},
                                          "locking the state folder");
    if (lock) {
      lock_ = std::move(*lock);
      break;
    }
    if (lock.error().code != errc::in_use || clock_.now() >= until) co_return lock.error();
    static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + kLockAgain));
  }
  parts_.begins();
  co_return co_await parts_.shell.start();
}

}  // namespace corbd::agent
