#include "corbd/heal/wait_for_users.hpp"

#include "support/catch.hpp"
#include "support/loop.hpp"
#include "support/scripted_volumes.hpp"

using namespace corbd;
using std::chrono::seconds;

namespace {

class Scripted final : public test::ScriptedVolumes {
 public:
  explicit Scripted(Clock& of, duration used_for) : clock(of), unused_at(of.now() + used_for) {}
  std::vector<volume::Status> status() const override {
    volume::Status one;
    one.volume_id = "used";
    one.in_use = clock.now() < unused_at;
    return {one};
  }
  std::vector<std::string> given_up;

 private:
  void granted(const std::string& id, const plan::Wish& wish) override {
    if (std::holds_alternative<plan::GivenUp>(wish)) given_up.push_back(id);
  }
  Clock& clock;
  time_point unused_at;
};

}  // namespace

TEST_CASE("a node that shuts down serves its devices until nobody uses them, and gives no volume up", "[rule:20]") {
  test::Loop loop;
  Scripted volumes(loop.clock, seconds(30));
  CancelScope hurry;
  const auto begin = loop.clock.now();
  loop.run(heal::wait_for_users(loop.control(), loop.clock, volumes, seconds(90), hurry));
  CHECK(loop.clock.now() >= begin + seconds(30));
  CHECK(loop.clock.now() < begin + seconds(32));
  CHECK(volumes.given_up.empty());
}

TEST_CASE("volumes still in use after the grace are given up, so that unmounts end", "[rule:20]") {
  test::Loop loop;
  Scripted volumes(loop.clock, seconds(95));
  CancelScope hurry;
  loop.run(heal::wait_for_users(loop.control(), loop.clock, volumes, seconds(90), hurry));
  CHECK(volumes.given_up == std::vector<std::string>{"used"});
}

TEST_CASE("a device that is used for ever does not keep the agent from leaving") {
  test::Loop loop;
  Scripted volumes(loop.clock, std::chrono::hours(1));
  CancelScope hurry;
  const auto begin = loop.clock.now();
  loop.run(heal::wait_for_users(loop.control(), loop.clock, volumes, seconds(90), hurry));
  CHECK(loop.clock.now() < begin + seconds(120));
}

TEST_CASE("a second signal ends the wait for users at once") {
  test::Loop loop;
  Scripted volumes(loop.clock, std::chrono::hours(1));
  CancelScope hurry;
  const auto begin = loop.clock.now();
  loop.clock.schedule(begin + seconds(5), [&] { hurry.cancel(); });
  loop.run(heal::wait_for_users(loop.control(), loop.clock, volumes, seconds(90), hurry));
  CHECK(loop.clock.now() == begin + seconds(5));
  CHECK(volumes.given_up.empty());
}
