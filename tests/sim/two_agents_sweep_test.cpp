// A node is cut off before every call of its agent's life: while it stages, serves, and heals after a kill.
#include <algorithm>

#include "two_agents.hpp"

using namespace corbd;
using test::kBlocks;
using test::kId;
using test::TwoAgents;
using test::Way;
using test::World;
using namespace std::chrono_literals;

namespace {

enum class Killed { none, cut_off, other };

struct Told : TwoAgents {
  using TwoAgents::TwoAgents;

  /// One life and the next, until the network is cut.
  void lives() {
    if (!goes_well(test::staged_wish(kId)) || !goes_well(plan::Attached{"uid-1"}) ||
        !goes_well(test::published(test::staged_wish(kId), kTarget)))
      return;
    write_some(0);
    kill(a);
    until_cut(10s);
    write_some(2);
  }
  void write_some(std::size_t first) {
    writes(a, first);
    writes(a, first + 1);
    until_cut(1s);
  }
  void until_cut(duration limit) {
    for (const auto end = now() + limit; !a.network.is_cut() && now() < end;) step(end);
  }
  bool goes_well(plan::Wish wish) {
    const auto answer = ask(a, kId, std::move(wish));
    while (!*answer && !a.network.is_cut()) step(now() + 1s);
    return *answer && !a.network.is_cut();
  }
};

/// False: its life has fewer calls.
bool tell(Way way, Killed killed, int at, bool sent_arrives, bool exclusive) {
  Told two(way, exclusive);
  INFO((exclusive ? "" : "no lock, ") << "way " << static_cast<int>(way) << ", killed " << static_cast<int>(killed)
                                      << ", cut before call " << at);
  two.a.network.sent_arrives = sent_arrives;
  int calls = 0;
  two.a.calls.before_call = [&](const std::string&) {
    if (++calls == at) two.cut_off();
  };
  two.lives();
  two.a.calls.before_call = nullptr;
  if (!two.a.network.is_cut()) two.cut_off();
  two.write_some(4);

  two.moves();
  if (killed == Killed::cut_off) two.loop_a.outside_in(1s + at % 50 * 1s, [&] { two.loop_a.crash(); });
  if (killed == Killed::other) two.b.calls.crash_at = 1 + at % 40;
  two.bring_up(two.b);
  two.reads_all(two.b);
  for (std::size_t block = 0; block < kBlocks; block += 2) two.writes(two.b, block);
  two.advance(5s);

  const auto written = two.image().blocks;
  two.comes_back();
  two.advance(4min);
  CHECK(two.image().blocks == written);
  CHECK(two.had_by(two.b));
  two.returns_to_a();
  CHECK(two.image().blocks == written);
  return calls >= at;
}

}  // namespace

TEST_CASE("a node that is cut off before any call of its agent loses no acknowledged write and overwrites none",
          "[failure:141]") {
  const Way way = GENERATE(Way::fenced, Way::tainted, Way::watch_ends);
  const Killed killed = GENERATE(Killed::none, Killed::cut_off, Killed::other);
  // Without a lock an agent that is killed before it knows its volume's attachment needs a person's word.
  const bool exclusive = killed == Killed::other || GENERATE(true, false);
  for (const bool sent_arrives : {true, false}) {
    int at = 1;
    while (tell(way, killed, at, sent_arrives, exclusive) && at < 200) ++at;
    CHECK(at > 30);
    CHECK(at < 200);
  }
}
