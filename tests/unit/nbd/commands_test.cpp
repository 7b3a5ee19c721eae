#include "commands.hpp"

#include "support/catch.hpp"
#include "support/loop.hpp"

namespace corbd::test {
namespace {

struct Asked {
  nbd::Commands::Place place;
  bool refused = false;
  void add(nbd::Commands& commands, const std::string& backend) {
    place = commands.add(backend, {"disconnecting", {}}, [this] { refused = true; });
  }
};

}  // namespace

TEST_CASE("a command that was begun is under way until its end is known, whether or not its caller waits") {
  Loop loop;
  nbd::Commands commands(loop.control(), loop.clock);
  Asked asked;
  asked.add(commands, "volume");
  CHECK(asked.place->begin());
  commands.leave(asked.place);
  REQUIRE(commands.find("volume"));
  CHECK(commands.find("volume")->what == "disconnecting");
  CHECK_FALSE(commands.find("another"));
  commands.remove(asked.place);
  CHECK_FALSE(commands.find("volume"));
}

TEST_CASE("a command that was not begun when its caller left is dropped") {
  Loop loop;
  nbd::Commands commands(loop.control(), loop.clock);
  Asked asked;
  asked.add(commands, "volume");
  commands.leave(asked.place);
  CHECK_FALSE(commands.find("volume"));
  CHECK_FALSE(asked.place->begin());
}

TEST_CASE("whoever leaves waits for the command that was begun, and no other is begun any more") {
  Loop loop;
  nbd::Commands commands(loop.control(), loop.clock);
  Asked begun, queued;
  begun.add(commands, "one");
  queued.add(commands, "two");
  REQUIRE(begun.place->begin());
  commands.close();
  CHECK_FALSE(commands.none().is_set());
  CHECK(queued.refused);
  CHECK_FALSE(queued.place->begin());
  CHECK_FALSE(commands.add("three", {}, [] {}));
  commands.remove(begun.place);
  CHECK(commands.none().is_set());
}

TEST_CASE("whoever leaves while no command is under way waits for none") {
  Loop loop;
  nbd::Commands commands(loop.control(), loop.clock);
  commands.close();
  CHECK(commands.none().is_set());
}

}  // namespace corbd::test
