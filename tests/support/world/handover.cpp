// As src/handover, src/agent/takeover.cpp and Agent::hand_over() in src/agent/agent.cpp.
#include "support/world/handover.hpp"

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kLooks = 5ms;

task<> pause(World& of) { co_await sleep_until(of.loop().control(), of.loop().clock, of.loop().clock.now() + kLooks); }

}  // namespace

Handover::Handover(World& serves, World& other) : before(serves), next(other) {}

void Handover::begin() {
  before.trace("the next agent begins beside the one that serves");
  next.agent.begin_beside();
  asio::co_spawn(before.loop().io, give(), asio::detached);
  asio::co_spawn(next.loop().io, take(), asio::detached);
}

void Handover::tell_next_to_end() {
  next_told = true;
  if (begun_ || next_has_lock) return;
  next_ended = true;
  end(false);
}

// --- The conversation ---------------------------------------------------------------------------

void Handover::say(Way& way, Word word) {
  if (ended_) return;
  const auto takes = late + (before.hazards == nullptr ? duration::zero() : before.hazards->any(2ms));
  way.last = std::max(way.last, before.loop().clock.now() + takes);
  ++way.under_way;
  before.loop().outside(way.last, [this, &way, word = std::move(word), in = generation_] {
    if (in != generation_) return;
    --way.under_way;
    way.heard.push_back(word);
  });
}

/// What was said before an end is heard first.
task<Handover::Heard> Handover::hear(World& by, Way& way, Word& word, duration within) {
  const auto until = by.loop().clock.now() + within;
  for (;;) {
    if (!way.heard.empty()) {
      word = std::move(way.heard.front());
      way.heard.pop_front();
      co_return Heard::word;
    }
    if (ended_ && way.under_way == 0) co_return Heard::ended;
    if (by.loop().clock.now() >= until) co_return Heard::nothing;
    co_await pause(by);
  }
}

void Handover::end(bool lost) {
  if (ended_) return;
  before.trace(lost ? "the conversation of the agents is lost" : "the conversation of the agents ends");
  ended_ = true;
  if (!lost) return;
  ++generation_;
  for (Way* way : {&to_next_, &to_before_}) *way = {};
  for (const auto& [device, given] : std::map(before.kernel.given))
    if (!given.taken && given.of == &next) before.kernel.discard_given(device);
}

void Handover::discard(std::uint32_t device) {
  const auto place = before.kernel.given.find(device);
  if (place != before.kernel.given.end() && place->second.of == &before) before.kernel.discard_given(device);
}

// --- The one before -----------------------------------------------------------------------------

void Handover::take_in_answers() {
  for (; !to_before_.heard.empty(); to_before_.heard.pop_front()) {
    const Word& word = to_before_.heard.front();
    word.what == Word::What::served ? static_cast<void>(served_.insert(word.device))
                                    : static_cast<void>(answered_.insert(word.what));
  }
}

task<bool> Handover::answers(Word::What question, Word::What answer, duration within) {
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

task<> Handover::give() {
  const bool ready = co_await answers(Word::What::ready, Word::What::ready, 2min);
  if (!ready || !before.agent.shell().answering(cold_).empty()) {
    end(false);
    refused = true;
    co_return;
  }
  say(to_next_, {Word::What::begins});
  if (const bool begins = co_await answers(Word::What::ready, Word::What::ready, 5s); !begins) {
    end(false);
    refused = true;
    co_return;
  }
  const bool quiet = co_await before.agent.quiesce();
  bool given = false;
  if (quiet) given = co_await answers(Word::What::ready, Word::What::ready, 5s);
  lock_said = given;
  if (given) given = co_await answers(Word::What::lock, Word::What::loaded, 10s);
  if (given)
    co_await before.agent.give([this](device::LinkSocket one) { return give_one(std::move(one)); });
  else
    co_await before.agent.shell().stop({before.loop().clock.now() + 1600ms});
  if (given) say(to_next_, {Word::What::end});
  before_ended = true;
}

task<volume::Taken> Handover::give_one(device::LinkSocket one) {
  const auto device = one.device;
  const auto place = before.kernel.given.find(device);
  if (ended_ || place == before.kernel.given.end()) {
    discard(device);
    co_return volume::Taken::refused;
  }
  // In its socket, and nobody else has it any more.
  place->second.of = &next;
  say(to_next_, {Word::What::link, one.volume_id, device});
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
  auto cold = co_await next.agent.shell().preopen({next.loop().clock.now() + 100s});
  if (!cold) {
    next_ended = true;
    co_return;
  }
  cold_ = std::move(*cold);
  for (;;) {
    Word word{};
    const Heard heard = co_await hear(next, to_next_, word, 150s);
    if (heard == Heard::nothing && next_has_lock) continue;
    if (heard == Heard::nothing) next_ended = true;
    if (heard == Heard::nothing) co_return;
    if (heard == Heard::ended || word.what == Word::What::end) break;
    if (const bool goes_on = co_await follow(std::move(word)); !goes_on) co_return;
  }
  if (!next_has_lock)
    if (const bool locked = co_await lock_alone(); !locked) co_return;
  for (const auto until = next.loop().clock.now() + 5s; serving_ > 0 && next.loop().clock.now() < until;)
    co_await pause(next);
  next.agent.look_at_before(true);
  next.agent.serve();
  next_serves = true;
}

task<bool> Handover::follow(Word word) {
  if (word.what == Word::What::ready) say(to_before_, {Word::What::ready});
  if (word.what == Word::What::begins) begun_ = true;
  if (word.what == Word::What::lock) {
    next_has_lock = true;
    next.agent.look_at_before(false);
    const auto read = co_await next.agent.acquire_state();
    next_ended = !read;
    if (next_ended) co_return false;
    say(to_before_, {Word::What::loaded});
  }
  if (word.what == Word::What::link) {
    next.agent.devices().take(word.device, word.volume_id, Fd());
    ++serving_;
    asio::co_spawn(next.loop().io, serve(std::move(word)), asio::detached);
  }
  co_return true;
}

task<> Handover::serve(Word word) {
  static_cast<void>(
      co_await next.agent.shell().want(word.volume_id, plan::Wish(plan::Healed{}), {next.loop().clock.now() + 30s}));
  --serving_;
  say(to_before_, {Word::What::served, {}, word.device});
}

/// The one before has ended, or is about to.
task<bool> Handover::lock_alone() {
  for (const auto until = next.loop().clock.now() + 10s; next.agent.node.has_lock != nullptr;) {
    next_ended = next.loop().clock.now() >= until;
    if (next_ended) co_return false;
    co_await pause(next);
  }
  next_has_lock = true;
  const auto read = co_await next.agent.acquire_state();
  next_ended = !read;
  co_return !next_ended;
}

}  // namespace corbd::test
