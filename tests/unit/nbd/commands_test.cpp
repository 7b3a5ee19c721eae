#include "commands.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/loop.hpp"

namespace corbd::test {
namespace {

using namespace std::chrono_literals;

struct Asked {
  nbd::Commands::Place place;
  bool begun = false, refused = false;
  void add(nbd::Commands& commands, const std::string& backend) {
    place = commands.add(
        backend, {"disconnecting", {}}, [this](const nbd::Commands::Turn&) { begun = true; },
        [this](const Error&) { refused = true; });
  }
};

/// The node's file, and another process that may have it locked.
struct Lock {
  Folder folder;
  const std::string path = folder.path() + "/nbd.busy";
  Fd other{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  void take() const { REQUIRE(::flock(other.get(), LOCK_EX | LOCK_NB) == 0); }
  void release() const { ::flock(other.get(), LOCK_UN); }
};

}  // namespace

TEST_CASE("a command that was begun is under way until its end is known, whether or not its caller waits",
          "[failure:140]") {
  Loop loop;
  nbd::Commands commands(loop.control(), loop.clock, "");
  Asked asked;
  asked.add(commands, "volume");
  CHECK(asked.begun);
  commands.leave(asked.place);
  REQUIRE(commands.find("volume"));
  CHECK(commands.find("volume")->what == "disconnecting");
  CHECK_FALSE(commands.find("another"));
  commands.ended();
  CHECK_FALSE(commands.find("volume"));
}

TEST_CASE("commands are begun one after another, and one whose caller left meanwhile is dropped", "[failure:140]") {
  Loop loop;
  nbd::Commands commands(loop.control(), loop.clock, "");
  Asked first, second, third;
  first.add(commands, "one");
  second.add(commands, "two");
  third.add(commands, "three");
  CHECK_FALSE(second.begun);
  commands.leave(second.place);
  CHECK_FALSE(commands.find("two"));
  commands.ended();
  CHECK_FALSE(second.begun);
  CHECK(third.begun);
}

TEST_CASE("a leaving agent waits for the command under way and starts no other", "[failure:140]") {
  Loop loop;
  nbd::Commands commands(loop.control(), loop.clock, "");
  Asked begun, queued;
  begun.add(commands, "one");
  queued.add(commands, "two");
  REQUIRE(begun.begun);
  commands.close();
  CHECK_FALSE(commands.none().is_set());
  CHECK(queued.refused);
  CHECK_FALSE(commands.add("three", {}, [](const nbd::Commands::Turn&) {}, [](const Error&) {}));
  commands.ended();
  CHECK(commands.none().is_set());
  CHECK_FALSE(queued.begun);
}

TEST_CASE("an agent that leaves while no command is under way waits for none") {
  Loop loop;
  nbd::Commands commands(loop.control(), loop.clock, "");
  commands.close();
  CHECK(commands.none().is_set());
}

TEST_CASE("no command is begun while a helper that outlived its agent has the lock of the node's commands",
          "[failure:162]") {
  Loop loop;
  const Lock lock;
  lock.take();
  nbd::Commands commands(loop.control(), loop.clock, lock.path);
  Asked asked;
  asked.add(commands, "volume");
  loop.advance(10min);
  CHECK_FALSE(asked.begun);
  lock.release();
  loop.advance(20ms);
  CHECK(asked.begun);
}

TEST_CASE("a leaving agent waits for a helper that outlived its predecessor, and starts no command", "[failure:162]") {
  Loop loop;
  const Lock lock;
  lock.take();
  nbd::Commands commands(loop.control(), loop.clock, lock.path);
  Asked asked;
  asked.add(commands, "volume");
  commands.close();
  CHECK(asked.refused);
  loop.advance(1min);
  CHECK_FALSE(commands.none().is_set());
  lock.release();
  loop.advance(20ms);
  CHECK(commands.none().is_set());
  CHECK_FALSE(asked.begun);
}

TEST_CASE("another agent gets the turn only once the command under way gives it away") {
  Loop loop;
  const Lock lock;
  nbd::Commands commands(loop.control(), loop.clock, lock.path);
  nbd::Commands::Turn turn;
  commands.add("volume", {}, [&](nbd::Commands::Turn given) { turn = std::move(given); }, [](const Error&) {});
  REQUIRE(turn);
  CHECK(::flock(lock.other.get(), LOCK_EX | LOCK_NB) != 0);
  turn->reset();
  CHECK(::flock(lock.other.get(), LOCK_EX | LOCK_NB) == 0);
}

}  // namespace corbd::test
