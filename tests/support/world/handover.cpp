#include "support/world/handover.hpp"

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kLooks = 5ms;

lifecycle::Done done(bool well) { return {well ? errc::ok : errc::unavailable}; }

task<> pause(World& of) { co_await sleep_until(of.loop().control(), of.loop().clock, of.loop().clock.now() + kLooks); }

}  // namespace

/// Runs in a pod, without a keeper that restarts it.
Handover::Handover(World& serves, World& other)
    : before(serves),
      next(other),
      before_life_(serving_life({.handover = true, .in_pod = true, .leave_grace = 200s})),
      next_life_(lifecycle::start_of(before_life_.settings)) {}

void Handover::begin() {
  before.trace("the next agent begins beside the one that serves");
  next.agent.begin_beside();
  // This is checked before the first message.
  if (before.agent.compares_names && before.agent.called() != next.agent.called()) {
    before.trace("the next agent has another --nodeid");
    refused = next_ended = true;
    return end(false);
  }
  asio::co_spawn(before.loop().io, hand_over(), asio::detached);
  asio::co_spawn(next.loop().io, take(), asio::detached);
}

void Handover::tell_next_to_end() {
  if (!is(advance(next_life_, lifecycle::Signalled{next.loop().clock.now()}), lifecycle::Last::exit)) return;
  next_ended = true;
  end(false);
}

bool Handover::next_calls_reserve() {
  if (!next_life_.told_to_end()) return false;
  const auto now = next.loop().clock.now();
  advance(next_life_, lifecycle::NodeSeen{false});
  return is(advance(next_life_, lifecycle::Woken{now, false, next.kernel.devices.size()}),
            lifecycle::Serving::call_reserve);
}

// --- The conversation ---------------------------------------------------------------------------

void Handover::say(Way& way, PeerMessage peer_message) {
  if (ended_) return;
  const auto takes = late + (before.hazards == nullptr ? duration::zero() : before.hazards->any(2ms));
  way.last = std::max(way.last, before.loop().clock.now() + takes);
  ++way.under_way;
  before.loop().outside(way.last, [this, &way, peer_message = std::move(peer_message), in = generation_] {
    if (in != generation_) return;
    --way.under_way;
    way.heard.push_back(peer_message);
  });
}

/// Messages sent before an end arrive first.
task<lifecycle::Event> Handover::hear(duration within) {
  const auto until = next.loop().clock.now() + within;
  for (Way& way = to_next_;;) {
    if (!way.heard.empty()) {
      heard_ = std::move(way.heard.front());
      way.heard.pop_front();
      co_return lifecycle::Heard{heard_.what};
    }
    if (ended_ && way.under_way == 0) co_return lifecycle::Done{errc::not_found};
    if (next.loop().clock.now() >= until) co_return lifecycle::Done{errc::timed_out};
    co_await pause(next);
  }
}

void Handover::end(bool lost) {
  if (ended_) return;
  before.trace(lost ? "the conversation of the agents is lost" : "the conversation of the agents ends");
  ended_ = true;
  if (!lost) return;
  ++generation_;
  for (Way* way : {&to_next_, &to_before_}) *way = {};
  for (const auto& [device, given] : std::map(before.kernel.inherited))
    if (!given.taken && given.of == &next) before.kernel.discard_inherited(device);
}

void Handover::discard(std::uint32_t device) {
  const auto place = before.kernel.inherited.find(device);
  if (place != before.kernel.inherited.end() && place->second.of == &before) before.kernel.discard_inherited(device);
}

// --- The predecessor ----------------------------------------------------------------------------

void Handover::take_in_answers() {
  for (; !to_before_.heard.empty(); to_before_.heard.pop_front()) {
    const PeerMessage& peer_message = to_before_.heard.front();
    peer_message.what == PeerMessage::What::served ? static_cast<void>(served_.insert(peer_message.device))
                                                   : static_cast<void>(answered_.insert(peer_message.what));
  }
}

task<bool> Handover::answers(PeerMessage::What question, PeerMessage::What answer, duration within) {
  answered_.erase(answer);
  say(to_next_, {question});
  const auto until = before.loop().clock.now() + within;
  for (;;) {
    take_in_answers();
    if (answered_.contains(answer)) co_return !ended_;
    if (ended_ || before.loop().clock.now() >= until) co_return false;
    co_await pause(before);
  }
}

/// Begins to hand over, and does so or serves on.
task<> Handover::hand_over() {
  auto action = advance(before_life_, lifecycle::Woken{before.loop().clock.now(), true});
  while (!std::holds_alternative<lifecycle::LastAction>(action) && !is(action, lifecycle::Serving::wait)) {
    lifecycle::Event event;
    if (const auto* gives = std::get_if<lifecycle::HandingOverAction>(&action))
      event = co_await hand_over_step(*gives);
    else
      event = co_await serve_step(std::get<lifecycle::ServingAction>(action));
    action = advance(before_life_, event);
  }
  refused = is(action, lifecycle::Serving::wait);
  before_ended = !refused;
}

task<lifecycle::Event> Handover::serve_step(lifecycle::ServingAction action) {
  using Do = lifecycle::Serving;
  switch (action.what) {
    case Do::ask_next: {
      const bool ready = co_await answers(PeerMessage::What::ready, PeerMessage::What::ready, action.within);
      if (!ready) end(false);
      auto lost = before.agent.shell().answering(unopened_images_);
      co_await before.agent.shell().restore_keys(lost, {before.loop().clock.now() + action.within});
      auto here = co_await before.agent.shell().not_again(lost, {before.loop().clock.now() + action.within});
      for (auto& [id, why] : co_await before.agent.shell().in_full_pools({before.loop().clock.now() + action.within})) {
        if (std::ranges::find(lost, id) == lost.end()) lost.push_back(id);
        here.insert_or_assign(id, std::move(why));
      }
      co_return lifecycle::Answered{ready, lost.size(), here.size(), accepts_refused};
    }
    case Do::refuse_next:
      end(false);
      break;
    case Do::announce: {
      say(to_next_, {PeerMessage::What::begins});
      const bool ready = co_await answers(PeerMessage::What::ready, PeerMessage::What::ready, action.within);
      if (!ready) end(false);
      co_return done(ready);
    }
    case Do::begin_alone:
    case Do::serve:
    case Do::wait:
    case Do::call_reserve:
    case Do::wait_for_users:
      break;  // not played here
  }
  co_return lifecycle::Done{};
}

task<lifecycle::Event> Handover::hand_over_step(lifecycle::HandingOverAction action) {
  using Do = lifecycle::HandingOver;
  switch (action.what) {
    case Do::quiesce: {
      const auto quiet = co_await before.agent.shell().quiesce();
      co_return done(static_cast<bool>(quiet));
    }
    case Do::ask_next: {
      const bool ready = co_await answers(PeerMessage::What::ready, PeerMessage::What::ready, action.within);
      if (!ready) end(false);
      co_return done(ready);
    }
    case Do::hand_over_lock: {
      lock_said = true;
      const bool loaded = co_await answers(PeerMessage::What::lock, PeerMessage::What::loaded, 10s);
      if (!loaded && ended_) co_return lifecycle::Done{errc::not_found};
      co_return done(loaded);
    }
    case Do::serve_on:
      end(false);
      before.agent.resume();
      lock_said = false;
      break;
    case Do::stop_new_work:
      co_await before.agent.stop_new_work();
      break;
    case Do::stop_volumes:
      co_await before.agent.shell().stop({before.loop().clock.now() + action.within});
      break;
    case Do::hand_over_links:
      co_await before.agent.hand_over_links([this](device::LinkSocket one) { return hand_over_one(std::move(one)); });
      say(to_next_, {PeerMessage::What::end});
      break;
    case Do::release_listeners:
    case Do::await_callers:
    case Do::end_callers:
    case Do::unregister:
    case Do::tell_successor:
    case Do::note_reserve:
    case Do::hand_over_listeners:
    case Do::hear_last_signals:
      break;  // not played here
  }
  co_return lifecycle::Done{};
}

task<volume::Taken> Handover::hand_over_one(device::LinkSocket one) {
  const auto device = one.device;
  const auto place = before.kernel.inherited.find(device);
  if (ended_ || place == before.kernel.inherited.end()) {
    discard(device);
    co_return volume::Taken::refused;
  }
  // The link is in its socket, and nobody else has it any more.
  place->second.of = &next;
  say(to_next_, {PeerMessage::What::link, one.volume_id, device});
  const auto until = before.loop().clock.now() + 5s;
  while (!ended_ && !served_.contains(device) && before.loop().clock.now() < until) {
    co_await pause(before);
    take_in_answers();
  }
  if (ended_) co_return volume::Taken::refused;
  co_return served_.contains(device) ? volume::Taken::served : volume::Taken::later;
}

// --- The next one -------------------------------------------------------------------------------

task<> Handover::take() {
  advance(next_life_, lifecycle::Begun{});
  advance(next_life_, lifecycle::LinksGone{});
  auto action = advance(next_life_, lifecycle::Done{});
  while (const auto* takes = std::get_if<lifecycle::TakingOverAction>(&action)) {
    const auto event = co_await take_step(*takes);
    action = advance(next_life_, event);
  }
  if (is(action, lifecycle::Last::refuse)) next_ended = true;
  if (!is(action, lifecycle::Serving::serve)) co_return;
  next.agent.serve();
  advance(next_life_, lifecycle::Done{});
  next_serves = true;
}

task<lifecycle::Event> Handover::take_step(lifecycle::TakingOverAction action) {
  using Do = lifecycle::TakingOver;
  switch (action.what) {
    case Do::preopen: {
      auto unopened = co_await next.agent.shell().preopen({next.loop().clock.now() + action.within});
      if (!unopened) co_return lifecycle::Done{unopened.error().code};
      unopened_images_ = std::move(*unopened);
      break;
    }
    case Do::hear:
      co_return co_await hear(action.within);
    case Do::say_ready:
      say(to_before_, {PeerMessage::What::ready});
      break;
    case Do::take_lock:
    case Do::load_records: {
      const auto read = co_await next.agent.acquire_state(action.what == Do::take_lock);
      if (!read) co_return lifecycle::Done{read.error().code};
      break;
    }
    case Do::say_loaded:
      say(to_before_, {PeerMessage::What::loaded});
      break;
    case Do::take_link:
      next.agent.devices().take(heard_.device, heard_.volume_id, Fd());
      ++serving_;
      asio::co_spawn(next.loop().io, serve(heard_), asio::detached);
      break;
    case Do::lock:
      co_return co_await lock_alone(action.pause);
    case Do::finish:
      for (const auto until = next.loop().clock.now() + action.within; serving_ > 0 && next.loop().clock.now() < until;)
        co_await pause(next);
      static_cast<void>(next.agent.reload_predecessor_clients(true));
      break;
    case Do::take_listener:
      break;  // not played here
  }
  co_return lifecycle::Done{};
}

/// The predecessor has ended, or is about to.
task<lifecycle::Event> Handover::lock_alone(duration pause) {
  co_await sleep_until(next.loop().control(), next.loop().clock, next.loop().clock.now() + pause);
  co_return lifecycle::Done{next.agent.node.has_lock == nullptr ? errc::ok : errc::in_use};
}

task<> Handover::serve(PeerMessage peer_message) {
  static_cast<void>(co_await next.agent.shell().want(peer_message.volume_id, plan::Wish(plan::Healed{}),
                                                     {next.loop().clock.now() + 30s}));
  --serving_;
  if (next.agent.shell().status(peer_message.volume_id))
    say(to_before_, {PeerMessage::What::served, {}, peer_message.device});
}

}  // namespace corbd::test
