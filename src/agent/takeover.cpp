#include "takeover.hpp"

#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/process.hpp"
#include "corbd/plan/wish.hpp"

namespace corbd::agent {
namespace {

using handover::PeerMessage;

// By then the predecessor gives up waiting for this volume, and goes on with the next one.
constexpr std::chrono::seconds kServesWithin{30};
// The predecessor waits twice as long for everything that this agent does with the lock. A file that is late is written
// when its image is opened.
constexpr std::chrono::seconds kNotedWithin{5};
const failpoint::Places kTakeoverPlaces({"takeover.records"});

}  // namespace

Takeover::Takeover(executor control, Clock& clock, Fd predecessor, Parts parts)
    : control_(control), clock_(clock), parts_(std::move(parts)), serving_(control, clock) {
  if (predecessor) predecessor_.emplace(std::move(control), clock, std::move(predecessor));
}

task<result<lifecycle::Event>> Takeover::carry_out(lifecycle::TakingOverAction action) {
  using Do = lifecycle::TakingOver;
  result<> done;
  switch (action.what) {
    case Do::preopen:
      done = co_await preopen(action.within);
      break;
    case Do::hear:
      co_return co_await hear(action);
    case Do::say_ready:
      say({PeerMessage::What::ready, {}, 0, unopened_images_});
      break;
    case Do::take_lock:
      done = co_await take_lock_and_records();
      break;
    case Do::say_loaded:
      say({PeerMessage::What::loaded});
      break;
    case Do::take_listener:
      inherit_listener(std::move(said_.descriptor), said_.message.registered);
      break;
    case Do::take_link:
      take_link();
      break;
    case Do::lock:
      done = co_await lock_alone(action.pause);
      break;
    case Do::load_records:
      done = co_await parts_.shell.start();
      break;
    case Do::finish:
      leave();
      static_cast<void>(co_await serving_.close({clock_.now() + action.within}));
      // Clients that cannot be read now are read later, and served volumes go on meanwhile.
      static_cast<void>(co_await parts_.clusters.reload_predecessor_clients(true));
      break;
  }
  if (!done) co_return done.error();
  co_return lifecycle::Done{};
}

void Takeover::leave() {
  if (predecessor_) predecessor_->end();
}

/// If the predecessor cannot be reached any more, its end is the next event.
void Takeover::say(const PeerMessage& peer_message) { static_cast<void>(predecessor_->say(peer_message)); }

task<result<>> Takeover::preopen(duration within) {
  log::info("handover.waits", {{"waits_for", "a message of the agent that serves"}});
  auto unopened = co_await parts_.shell.preopen({clock_.now() + within});
  if (!unopened) co_return unopened.error();
  unopened_images_ = std::move(*unopened);
  co_return result<>();
}

task<result<lifecycle::Event>> Takeover::hear(lifecycle::TakingOverAction action) {
  if (action.say)
    log::warning("handover.waits", {{"waits_for", "the end of the predecessor, which is silent"},
                                    {"effect", "this agent serves only the devices that it was given"}});
  auto said = co_await predecessor_->next_message({clock_.now() + action.within});
  if (!said && said.error().code == errc::not_found)
    log::warning("handover.failed",
                 {{"error", said.error().text}, {"effect", "devices that were not given are healed"}});
  if (!said) co_return said.error();
  if (said->message.what == PeerMessage::What::loaded || said->message.what == PeerMessage::What::served)
    co_return Error{errc::internal, "the predecessor sent a message that only a next agent sends"};
  said_ = std::move(*said);
  co_return lifecycle::Heard{said_.message.what};
}

/// The predecessor no longer writes records.
task<result<>> Takeover::take_lock_and_records() {
  lock_ = std::move(said_.descriptor);
  auto note = [folder = parts_.state_dir, &held = lock_] { return note_lock_holder(folder, held); };
  // The note is only for people.
  if (const auto noted = co_await parts_.files.run(std::move(note), {}, "noting who has the lock"); !noted)
    log::warning("handover.lock_not_noted", {{"error", noted.error().text}});
  if (auto stopped = failpoint::hit("takeover.records"); !stopped) co_return stopped;
  co_return co_await parts_.shell.start_beside({clock_.now() + kNotedWithin});
}

/// The predecessor has ended without handing anything over.
task<result<>> Takeover::lock_alone(duration pause) {
  static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + pause));
  auto lock = co_await parts_.files.run([folder = parts_.state_dir] { return lock_folder(folder); }, {},
                                        "locking the state directory");
  if (!lock) co_return lock.error();
  lock_ = std::move(*lock);
  co_return result<>();
}

void Takeover::inherit_listener(Fd socket, bool registered) {
  listeners_.add(std::move(socket));
  registered_ |= registered;
}

void Takeover::take_link() {
  parts_.devices.of(said_.message.kind)
      .take(said_.message.device, said_.message.volume_id, std::move(said_.descriptor));
  serving_.spawn(serve(said_.message));
}

task<> Takeover::serve(handover::PeerMessage link) {
  const auto done =
      co_await parts_.shell.want(link.volume_id, plan::Wish(plan::Healed{}), {clock_.now() + kServesWithin});
  if (!done)
    log::warning("handover.not_served",
                 {{"volume", link.volume_id}, {"error", done.error().text}, {"effect", "it is healed"}});
  // Without its record no agent serves the device. The predecessor ends its watch of the lock only for a device that is
  // served.
  if (!parts_.shell.status(link.volume_id)) {
    log::error("handover.no_record",
               {{"volume", link.volume_id}, {"effect", "its requests wait until it is staged again"}});
    co_return;
  }
  say({.what = PeerMessage::What::served, .device = link.device, .kind = link.kind});
}

}  // namespace corbd::agent
