// An agent's life step by step: what it does after each event.
#include "corbd/lifecycle/lifecycle.hpp"

#include <algorithm>
#include <vector>

#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::lifecycle;
using namespace std::chrono_literals;
using What = handover::PeerMessage::What;

namespace {

const Settings kHost{.handover = true, .leave_grace = 200s};
const Settings kPod{.handover = true, .in_pod = true, .leave_grace = 200s};
constexpr time_point kNow{1h};

struct Life {
  explicit Life(const Settings& settings) : state(start_of(settings)) {}
  /// What it does then.
  Do operator()(const Event& event) {
    auto [after, asked] = next(state, event);
    state = after;
    action = asked;
    return action.what;
  }
  Do done() { return (*this)(Done{}); }
  Do fails(errc code) { return (*this)(Done{code}); }
  Do heard(What word) { return (*this)(Heard{word}); }
  State state;
  Action action;
};

/// The agent that serves has answered it.
Life taking_over(const Settings& settings = kPod) {
  Life life(settings);
  life(Begun{});
  life(LinksGone{});
  REQUIRE(life.done() == Do::preopen);
  REQUIRE(life.done() == Do::hear);
  return life;
}

Life serving(const Settings& settings = kPod) {
  Life life(settings);
  life(Begun{});
  life(LinksGone{});
  if (settings.handover) REQUIRE(life.fails(errc::not_found) == Do::lock);
  REQUIRE(life.done() == Do::begin_alone);
  REQUIRE(life.done() == Do::serve);
  REQUIRE(life.done() == Do::wait);
  return life;
}

Life handing_over(const Settings& settings = kPod) {
  Life life = serving(settings);
  REQUIRE(life(Woken{kNow, true}) == Do::ask_next);
  REQUIRE(life(Answered{true}) == Do::announce);
  REQUIRE(life.done() == Do::release_listeners);
  return life;
}

/// Told to end on a node that stays.
Life told_to_end(const Settings& settings = kPod) {
  Life life = serving(settings);
  REQUIRE(life(Signalled{kNow}) == Do::heed_signal);
  REQUIRE(life(NodeSeen{false}) == Do::none);
  return life;
}

/// Every action but the one that fails goes well: what is done until the process ends.
std::vector<Do> actions(Life& life, Do fails = Do::none) {
  std::vector<Do> all{life.action.what};
  for (int i = 0; i < 30 && life.state.phase != Phase::ended; ++i)
    all.push_back(life.action.what == fails ? life.fails(errc::unavailable) : life.done());
  return all;
}

}  // namespace

// --- Waiting -------------------------------------------------------------------------------------

TEST_CASE("an agent that finds no other takes the lock, reads the records and serves") {
  Life life(kHost);
  CHECK(life(Begun{}) == Do::let_links_go);
  CHECK(life(LinksGone{}) == Do::ask);
  CHECK(life.fails(errc::not_found) == Do::lock);
  CHECK(life.done() == Do::begin_alone);
  CHECK(life.state.phase == Phase::serving);
  CHECK(life.state.owns_state);
  CHECK(life.done() == Do::serve);
  CHECK(life.done() == Do::wait);
}

TEST_CASE("an agent without --handover neither asks a serving agent nor waits for it") {
  Life life({});
  life(Begun{});
  CHECK(life(LinksGone{}) == Do::lock);
  CHECK(life.fails(errc::in_use) == Do::refuse);
  CHECK(life.action.code == 1);
}

TEST_CASE("on a host an agent waits 10 s for one that ends, and not for one that refuses") {
  Life life(kHost);
  life(Begun{});
  life(LinksGone{});
  duration waited{};
  int tries = 0;
  for (; life.state.phase == Phase::waiting; ++tries) {
    life.fails(errc::not_found);
    if (life.fails(errc::in_use) == Do::ask) waited += life.action.pause;
  }
  CHECK(tries == 100);
  CHECK(waited == 99 * 100ms);
  CHECK(life.action.what == Do::refuse);
  Life other(kHost);
  other(Begun{});
  other(LinksGone{});
  CHECK(other.fails(errc::failed_precondition) == Do::refuse);
}

TEST_CASE("in a pod an agent waits as long as another serves, says so once, and asks a refusing one rarely") {
  Life life(kPod);
  life(Begun{});
  life(LinksGone{});
  CHECK(life.fails(errc::failed_precondition) == Do::ask);
  CHECK(life.action.pause == 5s);
  CHECK(life.action.say);
  int said = 0;
  for (int i = 0; i < 1000; ++i) {
    CHECK(life.fails(i % 2 == 0 ? errc::failed_precondition : errc::timed_out) == Do::ask);
    said += life.action.say ? 1 : 0;
  }
  CHECK(said == 0);
  CHECK(life.fails(errc::permission_denied) == Do::refuse);
}

TEST_CASE("a restarted agent resumes its keeper's links if it gets the lock, and ends them otherwise") {
  Life life(kPod);
  CHECK(life(Begun{.inherits_links = true, .restarted = true}) == Do::lock);
  CHECK(life.fails(errc::in_use) == Do::lock);
  CHECK(life.action.pause == 50ms);
  Life locked = life;
  CHECK(locked.done() == Do::begin_alone);
  for (int i = 0; i < 118; ++i) REQUIRE(life.fails(errc::in_use) == Do::lock);
  CHECK(life.fails(errc::in_use) == Do::let_links_go);
  CHECK(life(LinksGone{}) == Do::ask);
}

TEST_CASE("an agent lets its keeper's listening sockets go half a second after it found that another one serves") {
  const bool inherits_links = GENERATE(true, false);
  Life life(kPod);
  life(Begun{inherits_links, true});
  if (!inherits_links) {
    life(LinksGone{});
    life.fails(errc::not_found);
  }
  const auto lock_fails = [&] {
    if (life.action.what == Do::ask) life.fails(errc::not_found);
    life.fails(errc::in_use);
  };
  duration waited{};
  for (int tries = 0; !life.action.listeners_go && tries < 100; ++tries) {
    waited += life.action.pause;
    lock_fails();
  }
  CHECK(waited + life.action.pause == 500ms);
  lock_fails();
  CHECK(life.action.listeners_go);
}

TEST_CASE("an agent that another one refuses lets its keeper's listening sockets go at once") {
  Life life(kPod);
  life(Begun{.restarted = true});
  life(LinksGone{});
  CHECK_FALSE(life.action.listeners_go);
  CHECK(life.fails(errc::failed_precondition) == Do::ask);
  CHECK(life.action.listeners_go);
}

TEST_CASE("an agent that its keeper started again does not ask for the devices that it gave away, except in a pod") {
  for (const auto& [settings, asks] : {std::pair{kHost, Do::lock}, std::pair{kPod, Do::ask}}) {
    Life life(settings);
    life(Begun{.restarted = true});
    CHECK(life(LinksGone{}) == asks);
  }
}

TEST_CASE("a pod that handed over waits in reserve, serves when nobody else does, and asks when it is called") {
  Settings settings = kPod;
  settings.restart_wait = 1s;
  Life life(settings);
  life(Begun{});
  CHECK(life(LinksGone{.in_reserve = true}) == Do::wait_in_reserve);
  CHECK(life.state.phase == Phase::in_reserve);
  CHECK(life.action.within == 1s);
  Life called = life;
  CHECK(called.fails(errc::cancelled) == Do::ask);
  Life failed = life;
  CHECK(failed.fails(errc::state_write) == Do::refuse);
  CHECK(life.done() == Do::begin_alone);
}

// --- Taking over ---------------------------------------------------------------------------------

TEST_CASE("the next agent answers, takes the lock, the listeners and the links, and serves when the other has ended") {
  auto life = taking_over();
  CHECK(life.heard(What::ready) == Do::say_ready);
  CHECK(life.done() == Do::hear);
  CHECK(life.heard(What::begins) == Do::hear);
  CHECK(life.heard(What::lock) == Do::take_lock);
  CHECK(life.done() == Do::say_loaded);
  CHECK(life.done() == Do::hear);
  CHECK(life.heard(What::listener) == Do::take_listener);
  CHECK(life.done() == Do::hear);
  CHECK(life.heard(What::link) == Do::take_link);
  CHECK(life.done() == Do::hear);
  CHECK(life.heard(What::end) == Do::finish);
  CHECK(life.done() == Do::serve);
  CHECK(life.state.phase == Phase::serving);
}

TEST_CASE("a signal ends an agent to which nothing was given well, and not one that is promised everything") {
  auto life = taking_over();
  auto early = life;
  CHECK(early(Signalled{kNow}) == Do::exit);
  CHECK(early.action.code == 0);
  CHECK(early.done() == Do::none);
  life.heard(What::begins);
  CHECK(life(Signalled{kNow}) == Do::heed_signal);
  CHECK(life.state.told_to_end());
  CHECK(life.heard(What::lock) == Do::take_lock);
}

TEST_CASE("if its predecessor ends without giving the lock, the next agent takes the lock itself and heals") {
  Settings settings = kPod;
  settings.restart_wait = 1s;
  auto life = taking_over(settings);
  CHECK(life.fails(errc::not_found) == Do::lock);
  CHECK(life.action.pause == 1s);
  CHECK(life.fails(errc::in_use) == Do::lock);
  CHECK(life.action.pause == 50ms);
  auto never = life;
  for (int i = 0; i < 198; ++i) REQUIRE(never.fails(errc::in_use) == Do::lock);
  CHECK(never.fails(errc::in_use) == Do::refuse);
  CHECK(life.done() == Do::load_records);
  CHECK(life.state.owns_state);
  CHECK(life.done() == Do::finish);
  CHECK(life.done() == Do::serve);
}

TEST_CASE("a takeover from a silent predecessor fails unless that agent has given the lock") {
  auto life = taking_over();
  auto without = life;
  CHECK(without.fails(errc::timed_out) == Do::refuse);
  life.heard(What::begins);
  life.heard(What::lock);
  life.done();
  life.done();
  CHECK(life.fails(errc::timed_out) == Do::hear);
  CHECK(life.action.say);
  CHECK(life.fails(errc::not_found) == Do::finish);
}

TEST_CASE("a message that only a next agent sends, and one that is not understood, end a takeover") {
  for (const auto word : {What::loaded, What::served}) CHECK(taking_over().heard(word) == Do::refuse);
  CHECK(taking_over().fails(errc::internal) == Do::refuse);
}

TEST_CASE("an agent that cannot read the records does not take over") {
  auto life = taking_over();
  life.heard(What::lock);
  CHECK(life.fails(errc::state_corrupt) == Do::refuse);
}

// --- Serving -------------------------------------------------------------------------------------

TEST_CASE("an agent that cannot answer callers ends with an error") {
  Life life({});
  life(Begun{});
  life(LinksGone{});
  life.done();
  CHECK(life.done() == Do::serve);
  CHECK(life.fails(errc::exhausted) == Do::refuse);
}

TEST_CASE("an agent hands over without volumes that it could not serve again either, if an operator says so",
          "[failure:267][failure:269]") {
  auto life = serving();
  life(Woken{kNow, true, 3});
  CHECK(life(Answered{true, 2, 2, true}) == Do::announce);
  CHECK(life.action.say);
}

TEST_CASE("an agent serves on if the next one is not ready or would lose volumes") {
  auto life = serving();
  CHECK(life.action.within == duration::max());
  CHECK(life(Woken{kNow, false, 3}) == Do::wait);
  CHECK(life(Woken{kNow, true, 3}) == Do::ask_next);
  CHECK(life(Answered{false}) == Do::wait);
  life(Woken{kNow, true, 3});
  CHECK(life(Answered{true, 1}) == Do::refuse_next);
  CHECK(life.done() == Do::wait);
  life(Woken{kNow, true, 3});
  CHECK(life(Answered{true, 2, 2, false}) == Do::refuse_next);
  CHECK(life.done() == Do::wait);
  life(Woken{kNow, true, 3});
  CHECK(life(Answered{true, 2, 1, true}) == Do::refuse_next);
  CHECK(life.done() == Do::wait);
  life(Woken{kNow, true, 3});
  life(Answered{true});
  CHECK(life.fails(errc::unavailable) == Do::wait);
  CHECK(life.state.phase == Phase::serving);
}

TEST_CASE("an agent that is told to end first learns whether the node shuts down, then calls the pod in reserve") {
  auto life = serving();
  CHECK(life(Signalled{kNow}) == Do::heed_signal);
  CHECK(life.action.first);
  CHECK(life.action.within == 200s);
  CHECK(life(Woken{kNow, false, 3}) == Do::wait);
  CHECK_FALSE(life.action.say);
  CHECK(life(NodeSeen{false}) == Do::none);
  CHECK(life.state.waits_for_next());
  CHECK(life(Woken{kNow + 1s, false, 3}) == Do::call_reserve);
  CHECK(life.fails(errc::not_found) == Do::wait);
  CHECK(life.action.say);
  CHECK(life(Woken{kNow + 2s, false, 3}) == Do::call_reserve);
  CHECK(life.done() == Do::wait);
  CHECK_FALSE(life.action.say);
  CHECK(life(Woken{kNow + 3s, true, 3}) == Do::ask_next);
  CHECK(life(Answered{false}) == Do::wait);
  CHECK(life.action.within == 0s);
  CHECK(life(Woken{kNow + 200s, false, 3}) == Do::call_reserve);
  CHECK(life.fails(errc::not_found) == Do::stop_new_work);
  CHECK(life.state.phase == Phase::leaving);
}

TEST_CASE("a second signal drops a next agent that has not begun after 5 s, and users on a node that shuts down") {
  auto life = told_to_end();
  CHECK(life(Signalled{kNow}) == Do::heed_signal);
  CHECK_FALSE(life.action.first);
  CHECK(life.action.within == 5s);
  CHECK(life(PatienceOver{}) == Do::drop_next);
  CHECK(life(NodeSeen{true}) == Do::drop_next);
  auto gives = handing_over();
  CHECK(gives(PatienceOver{}) == Do::none);
  CHECK(gives(NodeSeen{true}) == Do::none);
}

TEST_CASE("what a signal changes is not lost while another action is under way") {
  auto life = serving();
  life(Woken{kNow, true, 3});
  life(Signalled{kNow});
  CHECK(life.state.doing == Do::ask_next);
  life(NodeSeen{false});
  CHECK(life(Answered{true}) == Do::announce);
}

TEST_CASE("an agent that is told to end before it serves decides that as soon as it serves") {
  const bool node_stops = GENERATE(false, true);
  Life life(kHost);
  life(Begun{});
  life(LinksGone{});
  life.fails(errc::not_found);
  REQUIRE(life.done() == Do::begin_alone);
  life(Signalled{kNow});
  life(NodeSeen{node_stops});
  REQUIRE(life.done() == Do::serve);
  REQUIRE(life.done() == Do::wait);
  CHECK(life.action.within == duration::zero());
  CHECK(life(Woken{kNow}) == (node_stops ? Do::wait_for_users : Do::stop_new_work));
}

// --- The end -------------------------------------------------------------------------------------

TEST_CASE("an agent on a node that shuts down leaves once its devices have no users") {
  auto life = serving();
  life(Signalled{kNow});
  life(NodeSeen{true});
  CHECK(life(Woken{kNow, true, 3}) == Do::wait_for_users);
  CHECK(life.done() == Do::stop_new_work);
}

TEST_CASE("a leaving agent answers the requests it has read, then ends its callers, and unregisters last") {
  auto life = told_to_end(kHost);
  REQUIRE(life(Woken{kNow, false, 3}) == Do::stop_new_work);
  CHECK(actions(life) ==
        std::vector{Do::stop_new_work, Do::stop_volumes, Do::end_callers, Do::close_clients, Do::unregister, Do::exit});
  CHECK(life.action.code == 0);
}

TEST_CASE("an agent that hands over gives the lock first, then ends what cannot begin again, then gives the links") {
  auto life = handing_over(kHost);
  CHECK(actions(life) == std::vector{Do::release_listeners, Do::await_callers, Do::quiesce, Do::ask_next,
                                     Do::hand_over_lock, Do::stop_new_work, Do::end_callers, Do::unregister,
                                     Do::tell_successor, Do::hand_over_listeners, Do::hand_over_links,
                                     Do::hear_last_signals, Do::exit});
  CHECK(life.action.code == 0);
}

TEST_CASE("a pod's agent that has handed over goes into reserve, unless it was told to end meanwhile") {
  auto life = handing_over();
  auto told = life;
  const auto all = actions(life);
  CHECK(std::ranges::count(all, Do::note_reserve) == 1);
  CHECK(all.back() == Do::go_to_reserve);
  while (told.action.what != Do::hear_last_signals) told.done();
  CHECK(told(Signalled{kNow}) == Do::heed_signal);
  CHECK(told.done() == Do::exit);
  auto early = handing_over();
  early(Signalled{kNow});
  const auto without = actions(early);
  CHECK(std::ranges::count(without, Do::note_reserve) == 0);
  CHECK(without.back() == Do::exit);
}

TEST_CASE("an agent whose handover fails answers the requests it has read and ends with an error") {
  const auto fails = GENERATE(Do::hand_over_lock, Do::hand_over_listeners, Do::hand_over_links);
  auto life = handing_over();
  const auto all = actions(life, fails);
  CHECK(std::ranges::count(all, Do::stop_volumes) == (fails == Do::hand_over_links ? 0 : 1));
  CHECK(all.back() == Do::exit);
  CHECK(life.action.code == 1);
}

TEST_CASE("an agent whose next one has the lock and is silent ends what keeps a process, before it ends") {
  auto life = handing_over();
  while (life.action.what != Do::hand_over_lock) life.done();
  CHECK(life.fails(errc::unavailable) == Do::stop_new_work);
  CHECK(actions(life) ==
        std::vector{Do::stop_new_work, Do::end_callers, Do::stop_volumes, Do::hear_last_signals, Do::exit});
  CHECK(life.action.code == 1);
}

TEST_CASE("an agent serves on if the next one ends, or is not ready any more, before it has the records",
          "[failure:230]") {
  const auto fails = GENERATE(Do::quiesce, Do::ask_next, Do::hand_over_lock);
  auto life = handing_over();
  while (life.action.what != fails) life.done();
  CHECK(life.fails(fails == Do::hand_over_lock ? errc::not_found : errc::unavailable) == Do::serve_on);
  auto told = life;
  CHECK(life.done() == Do::wait);
  CHECK(life.state.phase == Phase::serving);
  CHECK(life(Woken{kNow, true}) == Do::ask_next);
  CHECK(life(Answered{true}) == Do::announce);
  CHECK(life.done() == Do::release_listeners);
  told(Signalled{kNow});
  CHECK(told.done() == Do::wait);
  CHECK(told.action.within == 0s);
}

TEST_CASE("an agent whose listening sockets cannot be used again ends, so that callers find the next start") {
  auto life = handing_over();
  while (life.action.what != Do::hand_over_lock) life.done();
  REQUIRE(life.fails(errc::not_found) == Do::serve_on);
  CHECK(life.fails(errc::exhausted) == Do::refuse);
}

TEST_CASE("no event leads to another action after the last one") {
  auto life = handing_over();
  actions(life);
  CHECK(life(Signalled{kNow}) == Do::none);
  CHECK(life.done() == Do::none);
}
