// An agent's life step by step: what it does after each event.
#include "corbd/lifecycle/lifecycle.hpp"

#include <algorithm>
#include <variant>
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

/// An action without its arguments.
struct Kind : std::variant<Beside, Waiting, TakingOver, Serving, HandingOver, Leaving, Last> {
  using variant::variant;
  bool operator==(const Kind&) const = default;
};

struct Life {
  explicit Life(const Settings& settings) : state(start_of(settings)) {}
  /// What it does then.
  Kind operator()(const Event& event) {
    auto [after, asked] = next(state, event);
    state = after;
    action = asked;
    return kind();
  }
  Kind kind() const {
    return std::visit([](const auto& one) { return Kind(one.what); }, action);
  }
  template <class Of>
  const Of& as() const {
    return std::get<Of>(action);
  }
  Kind done() { return (*this)(Done{}); }
  Kind fails(errc code) { return (*this)(Done{code}); }
  Kind heard(What word) { return (*this)(Heard{word}); }
  State state;
  Action action;
};

/// The agent that serves has answered it.
Life taking_over(const Settings& settings = kPod) {
  Life life(settings);
  life(Begun{});
  life(LinksGone{});
  REQUIRE(life.done() == TakingOver::preopen);
  REQUIRE(life.done() == TakingOver::hear);
  return life;
}

Life serving(const Settings& settings = kPod) {
  Life life(settings);
  life(Begun{});
  life(LinksGone{});
  if (settings.handover) REQUIRE(life.fails(errc::not_found) == Waiting::lock);
  REQUIRE(life.done() == Serving::begin_alone);
  REQUIRE(life.done() == Serving::serve);
  REQUIRE(life.done() == Serving::wait);
  return life;
}

Life handing_over(const Settings& settings = kPod) {
  Life life = serving(settings);
  REQUIRE(life(Woken{kNow, true}) == Serving::ask_next);
  REQUIRE(life(Answered{true}) == Serving::announce);
  REQUIRE(life.done() == HandingOver::release_listeners);
  return life;
}

/// Told to end on a node that stays.
Life told_to_end(const Settings& settings = kPod) {
  Life life = serving(settings);
  REQUIRE(life(Signalled{kNow}) == Beside::heed_signal);
  REQUIRE(life(NodeSeen{false}) == Beside::nothing);
  return life;
}

/// Every action but the one that fails goes well: what is done until the process ends.
std::vector<Kind> actions(Life& life, Kind fails = Beside::nothing) {
  std::vector all{life.kind()};
  for (int i = 0; i < 30 && !std::holds_alternative<LastAction>(life.state.doing); ++i)
    all.push_back(life.kind() == fails ? life.fails(errc::unavailable) : life.done());
  return all;
}

}  // namespace

// --- Waiting -------------------------------------------------------------------------------------

TEST_CASE("an agent that finds no other takes the lock, reads the records and serves") {
  Life life(kHost);
  CHECK(life(Begun{}) == Waiting::let_links_go);
  CHECK(life(LinksGone{}) == Waiting::ask);
  CHECK(life.fails(errc::not_found) == Waiting::lock);
  CHECK(life.done() == Serving::begin_alone);
  CHECK(std::holds_alternative<ServingAction>(life.state.doing));
  CHECK(life.state.owns_state);
  CHECK(life.done() == Serving::serve);
  CHECK(life.done() == Serving::wait);
}

TEST_CASE("an agent without --handover neither asks a serving agent nor waits for it") {
  Life life({});
  life(Begun{});
  CHECK(life(LinksGone{}) == Waiting::lock);
  CHECK(life.fails(errc::in_use) == Last::refuse);
  CHECK(life.as<LastAction>().code == 1);
}

TEST_CASE("on a host an agent waits 10 s for one that ends, and not for one that refuses") {
  Life life(kHost);
  life(Begun{});
  life(LinksGone{});
  duration waited{};
  int tries = 0;
  for (; std::holds_alternative<WaitingAction>(life.state.doing); ++tries) {
    life.fails(errc::not_found);
    if (life.fails(errc::in_use) == Waiting::ask) waited += life.as<WaitingAction>().pause;
  }
  CHECK(tries == 100);
  CHECK(waited == 99 * 100ms);
  CHECK(life.kind() == Last::refuse);
  Life other(kHost);
  other(Begun{});
  other(LinksGone{});
  CHECK(other.fails(errc::failed_precondition) == Last::refuse);
}

TEST_CASE("in a pod an agent waits as long as another serves, says so once, and asks a refusing one rarely") {
  Life life(kPod);
  life(Begun{});
  life(LinksGone{});
  CHECK(life.fails(errc::failed_precondition) == Waiting::ask);
  CHECK(life.as<WaitingAction>().pause == 5s);
  CHECK(life.as<WaitingAction>().say);
  int said = 0;
  for (int i = 0; i < 1000; ++i) {
    CHECK(life.fails(i % 2 == 0 ? errc::failed_precondition : errc::timed_out) == Waiting::ask);
    said += life.as<WaitingAction>().say ? 1 : 0;
  }
  CHECK(said == 0);
  CHECK(life.fails(errc::permission_denied) == Last::refuse);
}

TEST_CASE("a restarted agent resumes its keeper's links if it gets the lock, and ends them otherwise") {
  Life life(kPod);
  CHECK(life(Begun{.inherits_links = true, .restarted = true}) == Waiting::lock);
  CHECK(life.fails(errc::in_use) == Waiting::lock);
  CHECK(life.as<WaitingAction>().pause == 50ms);
  Life locked = life;
  CHECK(locked.done() == Serving::begin_alone);
  for (int i = 0; i < 118; ++i) REQUIRE(life.fails(errc::in_use) == Waiting::lock);
  CHECK(life.fails(errc::in_use) == Waiting::let_links_go);
  CHECK(life(LinksGone{}) == Waiting::ask);
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
    if (life.kind() == Waiting::ask) life.fails(errc::not_found);
    life.fails(errc::in_use);
  };
  duration waited{};
  for (int tries = 0; !life.as<WaitingAction>().listeners_go && tries < 100; ++tries) {
    waited += life.as<WaitingAction>().pause;
    lock_fails();
  }
  CHECK(waited + life.as<WaitingAction>().pause == 500ms);
  lock_fails();
  CHECK(life.as<WaitingAction>().listeners_go);
}

TEST_CASE("an agent that another one refuses lets its keeper's listening sockets go at once") {
  Life life(kPod);
  life(Begun{.restarted = true});
  life(LinksGone{});
  CHECK_FALSE(life.as<WaitingAction>().listeners_go);
  CHECK(life.fails(errc::failed_precondition) == Waiting::ask);
  CHECK(life.as<WaitingAction>().listeners_go);
}

TEST_CASE("an agent that its keeper started again does not ask for the devices that it gave away, except in a pod") {
  for (const auto& [settings, asks] : {std::pair{kHost, Waiting::lock}, std::pair{kPod, Waiting::ask}}) {
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
  CHECK(life(LinksGone{.in_reserve = true}) == Waiting::wait_in_reserve);
  CHECK(life.as<WaitingAction>().within == 1s);
  Life called = life;
  CHECK(called.fails(errc::cancelled) == Waiting::ask);
  Life failed = life;
  CHECK(failed.fails(errc::state_write) == Last::refuse);
  CHECK(life.done() == Serving::begin_alone);
}

// --- Taking over ---------------------------------------------------------------------------------

TEST_CASE("the next agent answers, takes the lock, the listeners and the links, and serves when the other has ended") {
  auto life = taking_over();
  CHECK(life.heard(What::ready) == TakingOver::say_ready);
  CHECK(life.done() == TakingOver::hear);
  CHECK(life.heard(What::begins) == TakingOver::hear);
  CHECK(life.heard(What::lock) == TakingOver::take_lock);
  CHECK(life.done() == TakingOver::say_loaded);
  CHECK(life.done() == TakingOver::hear);
  CHECK(life.heard(What::listener) == TakingOver::take_listener);
  CHECK(life.done() == TakingOver::hear);
  CHECK(life.heard(What::link) == TakingOver::take_link);
  CHECK(life.done() == TakingOver::hear);
  CHECK(life.heard(What::end) == TakingOver::finish);
  CHECK(life.done() == Serving::serve);
  CHECK(std::holds_alternative<ServingAction>(life.state.doing));
}

TEST_CASE("a signal ends an agent to which nothing was given well, and not one that is promised everything") {
  auto life = taking_over();
  auto early = life;
  CHECK(early(Signalled{kNow}) == Last::exit);
  CHECK(early.as<LastAction>().code == 0);
  CHECK(early.done() == Beside::nothing);
  life.heard(What::begins);
  CHECK(life(Signalled{kNow}) == Beside::heed_signal);
  CHECK(life.state.told_to_end());
  CHECK(life.heard(What::lock) == TakingOver::take_lock);
}

TEST_CASE("if its predecessor ends without giving the lock, the next agent takes the lock itself and heals") {
  Settings settings = kPod;
  settings.restart_wait = 1s;
  auto life = taking_over(settings);
  CHECK(life.fails(errc::not_found) == TakingOver::lock);
  CHECK(life.as<TakingOverAction>().pause == 1s);
  CHECK(life.fails(errc::in_use) == TakingOver::lock);
  CHECK(life.as<TakingOverAction>().pause == 50ms);
  auto never = life;
  for (int i = 0; i < 198; ++i) REQUIRE(never.fails(errc::in_use) == TakingOver::lock);
  CHECK(never.fails(errc::in_use) == Last::refuse);
  CHECK(life.done() == TakingOver::load_records);
  CHECK(life.state.owns_state);
  CHECK(life.done() == TakingOver::finish);
  CHECK(life.done() == Serving::serve);
}

TEST_CASE("a takeover from a silent predecessor fails unless that agent has given the lock") {
  auto life = taking_over();
  auto without = life;
  CHECK(without.fails(errc::timed_out) == Last::refuse);
  life.heard(What::begins);
  life.heard(What::lock);
  life.done();
  life.done();
  CHECK(life.fails(errc::timed_out) == TakingOver::hear);
  CHECK(life.as<TakingOverAction>().say);
  CHECK(life.fails(errc::not_found) == TakingOver::finish);
}

TEST_CASE("a message that only a next agent sends, and one that is not understood, end a takeover") {
  for (const auto word : {What::loaded, What::served}) CHECK(taking_over().heard(word) == Last::refuse);
  CHECK(taking_over().fails(errc::internal) == Last::refuse);
}

TEST_CASE("an agent that cannot read the records does not take over") {
  auto life = taking_over();
  life.heard(What::lock);
  CHECK(life.fails(errc::state_corrupt) == Last::refuse);
}

// --- Serving -------------------------------------------------------------------------------------

TEST_CASE("an agent that cannot answer callers ends with an error") {
  Life life({});
  life(Begun{});
  life(LinksGone{});
  life.done();
  CHECK(life.done() == Serving::serve);
  CHECK(life.fails(errc::exhausted) == Last::refuse);
}

TEST_CASE("an agent hands over without volumes that it could not serve again either, if an operator says so",
          "[failure:267][failure:269]") {
  auto life = serving();
  life(Woken{kNow, true, 3});
  CHECK(life(Answered{true, 2, 2, true}) == Serving::announce);
  CHECK(life.as<ServingAction>().say);
}

TEST_CASE("an agent serves on if the next one is not ready or would lose volumes") {
  auto life = serving();
  CHECK(life.as<ServingAction>().within == duration::max());
  CHECK(life(Woken{kNow, false, 3}) == Serving::wait);
  CHECK(life(Woken{kNow, true, 3}) == Serving::ask_next);
  CHECK(life(Answered{false}) == Serving::wait);
  life(Woken{kNow, true, 3});
  CHECK(life(Answered{true, 1}) == Serving::refuse_next);
  CHECK(life.done() == Serving::wait);
  life(Woken{kNow, true, 3});
  CHECK(life(Answered{true, 2, 2, false}) == Serving::refuse_next);
  CHECK(life.done() == Serving::wait);
  life(Woken{kNow, true, 3});
  CHECK(life(Answered{true, 2, 1, true}) == Serving::refuse_next);
  CHECK(life.done() == Serving::wait);
  life(Woken{kNow, true, 3});
  life(Answered{true});
  CHECK(life.fails(errc::unavailable) == Serving::wait);
  CHECK(std::holds_alternative<ServingAction>(life.state.doing));
}

TEST_CASE("an agent that is told to end first learns whether the node shuts down, then calls the pod in reserve") {
  auto life = serving();
  CHECK(life(Signalled{kNow}) == Beside::heed_signal);
  CHECK(life.as<BesideAction>().first);
  CHECK(life.as<BesideAction>().within == 200s);
  CHECK(life(Woken{kNow, false, 3}) == Serving::wait);
  CHECK_FALSE(life.as<ServingAction>().say);
  CHECK(life(NodeSeen{false}) == Beside::nothing);
  CHECK(life.state.waits_for_next());
  CHECK(life(Woken{kNow + 1s, false, 3}) == Serving::call_reserve);
  CHECK(life.fails(errc::not_found) == Serving::wait);
  CHECK(life.as<ServingAction>().say);
  CHECK(life(Woken{kNow + 2s, false, 3}) == Serving::call_reserve);
  CHECK(life.done() == Serving::wait);
  CHECK_FALSE(life.as<ServingAction>().say);
  CHECK(life(Woken{kNow + 3s, true, 3}) == Serving::ask_next);
  CHECK(life(Answered{false}) == Serving::wait);
  CHECK(life.as<ServingAction>().within == 0s);
  CHECK(life(Woken{kNow + 200s, false, 3}) == Serving::call_reserve);
  CHECK(life.fails(errc::not_found) == Leaving::stop_new_work);
}

TEST_CASE("a second signal drops a next agent that has not begun after 5 s, and users on a node that shuts down") {
  auto life = told_to_end();
  CHECK(life(Signalled{kNow}) == Beside::heed_signal);
  CHECK_FALSE(life.as<BesideAction>().first);
  CHECK(life.as<BesideAction>().within == 5s);
  CHECK(life(PatienceOver{}) == Beside::drop_next);
  CHECK(life(NodeSeen{true}) == Beside::drop_next);
  auto gives = handing_over();
  CHECK(gives(PatienceOver{}) == Beside::nothing);
  CHECK(gives(NodeSeen{true}) == Beside::nothing);
}

TEST_CASE("what a signal changes is not lost while another action is under way") {
  auto life = serving();
  life(Woken{kNow, true, 3});
  life(Signalled{kNow});
  CHECK(is(life.state.doing, Serving::ask_next));
  life(NodeSeen{false});
  CHECK(life(Answered{true}) == Serving::announce);
}

TEST_CASE("an agent that is told to end before it serves decides that as soon as it serves") {
  const bool node_stops = GENERATE(false, true);
  Life life(kHost);
  life(Begun{});
  life(LinksGone{});
  life.fails(errc::not_found);
  REQUIRE(life.done() == Serving::begin_alone);
  life(Signalled{kNow});
  life(NodeSeen{node_stops});
  REQUIRE(life.done() == Serving::serve);
  REQUIRE(life.done() == Serving::wait);
  CHECK(life.as<ServingAction>().within == duration::zero());
  CHECK(life(Woken{kNow}) == (node_stops ? Kind(Serving::wait_for_users) : Leaving::stop_new_work));
}

// --- The end -------------------------------------------------------------------------------------

TEST_CASE("an agent on a node that shuts down leaves once its devices have no users") {
  auto life = serving();
  life(Signalled{kNow});
  life(NodeSeen{true});
  CHECK(life(Woken{kNow, true, 3}) == Serving::wait_for_users);
  CHECK(life.done() == Leaving::stop_new_work);
}

TEST_CASE("a leaving agent answers the requests it has read, then ends its callers, and unregisters last") {
  auto life = told_to_end(kHost);
  REQUIRE(life(Woken{kNow, false, 3}) == Leaving::stop_new_work);
  CHECK(actions(life) == std::vector<Kind>{Leaving::stop_new_work, Leaving::stop_volumes, Leaving::end_callers,
                                           Leaving::close_clients, Leaving::unregister, Last::exit});
  CHECK(life.as<LastAction>().code == 0);
}

TEST_CASE("an agent that hands over gives the lock first, then ends what cannot begin again, then gives the links") {
  auto life = handing_over(kHost);
  CHECK(actions(life) == std::vector<Kind>{HandingOver::release_listeners, HandingOver::await_callers,
                                           HandingOver::quiesce, HandingOver::ask_next, HandingOver::hand_over_lock,
                                           HandingOver::stop_new_work, HandingOver::end_callers,
                                           HandingOver::unregister, HandingOver::tell_successor,
                                           HandingOver::hand_over_listeners, HandingOver::hand_over_links,
                                           HandingOver::hear_last_signals, Last::exit});
  CHECK(life.as<LastAction>().code == 0);
}

TEST_CASE("a pod's agent that has handed over goes into reserve, unless it was told to end meanwhile") {
  auto life = handing_over();
  auto told = life;
  const auto all = actions(life);
  CHECK(std::ranges::count(all, HandingOver::note_reserve) == 1);
  CHECK(all.back() == Last::go_to_reserve);
  while (told.kind() != HandingOver::hear_last_signals) told.done();
  CHECK(told(Signalled{kNow}) == Beside::heed_signal);
  CHECK(told.done() == Last::exit);
  auto early = handing_over();
  early(Signalled{kNow});
  const auto without = actions(early);
  CHECK(std::ranges::count(without, HandingOver::note_reserve) == 0);
  CHECK(without.back() == Last::exit);
}

TEST_CASE("an agent whose handover fails answers the requests it has read and ends with an error") {
  const auto fails =
      GENERATE(HandingOver::hand_over_lock, HandingOver::hand_over_listeners, HandingOver::hand_over_links);
  auto life = handing_over();
  const auto all = actions(life, fails);
  CHECK(std::ranges::count(all, HandingOver::stop_volumes) == (fails == HandingOver::hand_over_links ? 0 : 1));
  CHECK(all.back() == Last::exit);
  CHECK(life.as<LastAction>().code == 1);
}

TEST_CASE("an agent whose next one has the lock and is silent ends what keeps a process, before it ends") {
  auto life = handing_over();
  while (life.kind() != HandingOver::hand_over_lock) life.done();
  CHECK(life.fails(errc::unavailable) == HandingOver::stop_new_work);
  CHECK(actions(life) == std::vector<Kind>{HandingOver::stop_new_work, HandingOver::end_callers,
                                           HandingOver::stop_volumes, HandingOver::hear_last_signals, Last::exit});
  CHECK(life.as<LastAction>().code == 1);
}

TEST_CASE("an agent serves on if the next one ends, or is not ready any more, before it has the records",
          "[failure:230]") {
  const auto fails = GENERATE(HandingOver::quiesce, HandingOver::ask_next, HandingOver::hand_over_lock);
  auto life = handing_over();
  while (life.kind() != fails) life.done();
  CHECK(life.fails(fails == HandingOver::hand_over_lock ? errc::not_found : errc::unavailable) ==
        HandingOver::serve_on);
  auto told = life;
  CHECK(life.done() == Serving::wait);
  CHECK(std::holds_alternative<ServingAction>(life.state.doing));
  CHECK(life(Woken{kNow, true}) == Serving::ask_next);
  CHECK(life(Answered{true}) == Serving::announce);
  CHECK(life.done() == HandingOver::release_listeners);
  told(Signalled{kNow});
  CHECK(told.done() == Serving::wait);
  CHECK(told.as<ServingAction>().within == 0s);
}

TEST_CASE("an agent whose listening sockets cannot be used again ends, so that callers find the next start") {
  auto life = handing_over();
  while (life.kind() != HandingOver::hand_over_lock) life.done();
  REQUIRE(life.fails(errc::not_found) == HandingOver::serve_on);
  CHECK(life.fails(errc::exhausted) == Last::refuse);
}

TEST_CASE("no event leads to another action after the last one") {
  auto life = handing_over();
  actions(life);
  CHECK(life(Signalled{kNow}) == Beside::nothing);
  CHECK(life.done() == Beside::nothing);
}
