// Chooses the connection that the next caller gets, and gives clusters threads for their calls.
#include "choosing.hpp"

#include <future>

#include "cluster_threads.hpp"
#include "connection.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using rbd::Need;

namespace {

constexpr rbd::Limits kLimits{2, 64};
constexpr time_point kNow = time_point() + 1h;

std::shared_ptr<rbd::Connection> connection(std::size_t users) {
  auto made = std::make_shared<rbd::Connection>();
  made->users = users;
  return made;
}

std::shared_ptr<rbd::Connection> silent(std::size_t users) {
  auto made = connection(users);
  made->silent = true;
  return made;
}

rbd::Group group(std::vector<std::shared_ptr<rbd::Connection>> serving) {
  rbd::Group made;
  made.serving = std::move(serving);
  return made;
}

}  // namespace

TEST_CASE("an image goes to the fullest connection that has room") {
  const auto some = group({connection(3), connection(9), connection(64)});
  CHECK(rbd::choose(some, Need::room_for_image, kLimits) == some.serving[1]);
}

TEST_CASE("another connection is made once none has room, up to the limit, and then they share") {
  const auto one = group({connection(64)});
  CHECK(rbd::choose(one, Need::room_for_image, kLimits) == nullptr);
  const auto two = group({connection(80), connection(70)});
  CHECK(rbd::choose(two, Need::room_for_image, kLimits) == two.serving[1]);
}

TEST_CASE("a connection that answers goes before one that does not, also if it is full") {
  const auto some = group({silent(1), connection(64)});
  CHECK_FALSE(rbd::needs_another(some, Need::any, kLimits, kNow));
  CHECK(rbd::choose(some, Need::room_for_image, kLimits) == some.serving[1]);
}

TEST_CASE("while no connection answers, one more is made a minute, two beyond the limit", "[failure:270]") {
  auto some = group({silent(1), silent(1)});
  CHECK(rbd::needs_another(some, Need::any, kLimits, kNow));
  some.further_from = kNow + 60s;
  CHECK_FALSE(rbd::needs_another(some, Need::any, kLimits, kNow + 59s));
  CHECK(rbd::needs_another(some, Need::any, kLimits, kNow + 60s));
  some.serving.push_back(silent(1));
  some.serving.push_back(silent(1));
  CHECK_FALSE(rbd::needs_another(some, Need::any, kLimits, kNow + 1h));
  CHECK(rbd::choose(some, Need::any, kLimits) != nullptr);
}

TEST_CASE("a caller waits for a further connection that is being made") {
  test::Loop loop;
  auto some = group({silent(1)});
  some.further_from = kNow + 60s;
  some.connecting = std::make_shared<rbd::Attempt>(loop.control(), loop.clock);
  CHECK(rbd::needs_another(some, Need::any, kLimits, kNow));
}

TEST_CASE("a retired connection counts for nothing, and one of a fenced node only for monitors") {
  auto retired = connection(1), fenced = connection(2);
  retired->retired = true;
  fenced->node_fenced = Error{errc::node_fenced, "fenced"};
  const auto some = group({retired, fenced});
  CHECK(rbd::choose(some, Need::any, kLimits) == nullptr);
  CHECK(rbd::choose(some, Need::monitors, kLimits) == fenced);
}

TEST_CASE("a cluster whose calls have no answer gets new threads three times, and again once an earlier call ended",
          "[failure:270]") {
  test::Loop loop;
  Gate gate(loop.control(), loop.clock);
  rbd::ThreadsByCluster threads(loop.control(), loop.clock);
  CHECK_FALSE(threads.renew("lab"));
  std::vector<std::promise<void>> ends(4);
  std::vector<std::unique_ptr<test::Started<result<int>>>> calls;
  for (auto& end : ends) {
    auto stuck = [ended = end.get_future().share()] {
      ended.wait();
      return result<int>(1);
    };
    calls.push_back(std::make_unique<test::Started<result<int>>>(
        loop.io, threads.of("lab").looks.call_to_end(gate, std::move(stuck), "asking")));
    const auto* before = &threads.of("lab");
    CHECK(threads.renew("lab") == (calls.size() <= 3));
    CHECK((&threads.of("lab") != before) == (calls.size() <= 3));
  }
  const auto user = std::make_shared<rbd::Connection>();
  user->threads = &threads.of("lab");
  threads.note_connection(user);
  ends[0].set_value();
  CHECK(calls[0]->get());
  CHECK(threads.renew("lab"));
  for (std::size_t i = 1; i < ends.size(); ++i) {
    ends[i].set_value();
    CHECK(calls[i]->get());
  }
  // The newest threads are idle. The connection's earlier ones still exist.
  CHECK_FALSE(threads.renew("lab"));
  CHECK(user->threads->idle());
}

TEST_CASE("an idle connection ends after ten minutes, except for the one of its cluster that was used last") {
  const auto idle = [](std::string cluster, std::size_t users, std::chrono::minutes since) {
    auto made = std::make_shared<rbd::Group>();
    made->access.cluster_id = std::move(cluster);
    made->serving = {connection(users)};
    made->serving.front()->group = made;
    made->serving.front()->idle_since = kNow - since;
    return made;
  };
  const auto first = idle("a", 0, 30min), second = idle("a", 0, 20min), third = idle("a", 0, 10min),
             last = idle("a", 0, 5min), used = idle("a", 1, 40min), alone = idle("b", 0, 60min);
  const auto judged = rbd::judge_idle({first, second, third, last, used, alone}, kNow);
  CHECK(judged.end == std::vector{first->serving.front(), second->serving.front(), third->serving.front()});
  CHECK_FALSE(judged.end_later);
  CHECK(rbd::judge_idle({third, last}, kNow - 1min).end_later);
  for (const auto& one : {first, second, third, last, used, alone}) one->serving.clear();
}
