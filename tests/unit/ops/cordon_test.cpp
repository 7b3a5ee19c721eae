#include "corbd/ops/cordon.hpp"

#include <fstream>

#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"
#include "support/loop.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using ops::Cordon;
using ops::Cordoned;

namespace {

/// A state directory, and one agent after another in it.
struct Node {
  // The pool's thread is real, so time must not run ahead of it.
  result<> set(Cordon& cordon, bool on) { return test::Started<result<>>(loop.io, cordon.set(on, {})).get(); }
  void load(Cordon& cordon) {
    static_cast<void>(test::Started<result<>>(loop.io,
                                              [](Cordon& of) -> task<result<>> {
                                                co_await of.load();
                                                co_return result<>();
                                              }(cordon))
                          .get());
  }
  std::string file() const { return folder.path() + "/drained.json"; }

  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  test::Folder folder;
};

}  // namespace

TEST_CASE("a node that nobody drained is not drained") {
  Node node;
  Cordon cordon(node.loop.control(), node.loop.clock, node.pool, node.folder.path());
  node.load(cordon);
  CHECK_FALSE(cordon.now());
}

TEST_CASE("a drain outlives the agent, with its time, until it is undone") {
  Node node;
  Cordon first(node.loop.control(), node.loop.clock, node.pool, node.folder.path());
  const auto since = node.loop.clock.wall();
  REQUIRE(node.set(first, true));
  node.loop.advance(10min);
  Cordon second(node.loop.control(), node.loop.clock, node.pool, node.folder.path());
  node.load(second);
  REQUIRE(second.now());
  CHECK(second.now()->since == since);
  REQUIRE(node.set(second, false));
  CHECK_FALSE(second.now());
  Cordon third(node.loop.control(), node.loop.clock, node.pool, node.folder.path());
  node.load(third);
  CHECK_FALSE(third.now());
}

TEST_CASE("a drain of a week ago does not bind an agent that starts, and its file goes") {
  Node node;
  Cordon first(node.loop.control(), node.loop.clock, node.pool, node.folder.path());
  REQUIRE(node.set(first, true));
  node.loop.advance(7 * 24h);
  CHECK(first.now());
  Cordon second(node.loop.control(), node.loop.clock, node.pool, node.folder.path());
  node.load(second);
  CHECK_FALSE(second.now());
  CHECK_FALSE(std::filesystem::exists(node.file()));
}

TEST_CASE("a repeated drain writes nothing within the hour, and later renews the cordon") {
  Node node;
  Cordon cordon(node.loop.control(), node.loop.clock, node.pool, node.folder.path());
  REQUIRE(node.set(cordon, true));
  const auto since = cordon.now()->since;
  node.loop.advance(59min);
  REQUIRE(node.set(cordon, true));
  CHECK(cordon.now()->since == since);
  node.loop.advance(1min);
  REQUIRE(node.set(cordon, true));
  CHECK(cordon.now()->since == *since + 1h);
}

TEST_CASE("an unreadable cordon file counts as a cordon of unknown age") {
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1]"), std::string("{\"drained_at_ms\":\"x\"}"),
        std::string("{\"drained_at_ms\":9223372036854775807}"), std::string("{\"drained_at_ms\":-1}"),
        std::string(4096, ' ')}) {
    Node node;
    std::ofstream(node.file()) << text;
    Cordon cordon(node.loop.control(), node.loop.clock, node.pool, node.folder.path());
    node.load(cordon);
    REQUIRE(cordon.now());
    CHECK_FALSE(cordon.now()->since);
    CHECK_THAT(cordon.now()->text(), ContainsSubstring("does not tell"));
    REQUIRE(node.set(cordon, false));
    CHECK_FALSE(std::filesystem::exists(node.file()));
  }
}

TEST_CASE("a cordon that cannot be written is refused, and changes nothing") {
  Node node;
  Cordon cordon(node.loop.control(), node.loop.clock, node.pool, node.folder.path() + "/gone");
  const auto refused = node.set(cordon, true);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::state_write);
  CHECK_FALSE(cordon.now());
}

TEST_CASE("a cordon set in the future counts, because the clock may have been set back") {
  const auto now = std::chrono::system_clock::time_point(1000h);
  CHECK(ops::still_cordoned({now + 48h}, now));
  CHECK(ops::still_cordoned({now - 167h}, now));
  CHECK_FALSE(ops::still_cordoned({now - 168h}, now));
  CHECK(ops::still_cordoned({}, now));
}
