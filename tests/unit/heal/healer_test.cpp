#include "corbd/heal/healer.hpp"

#include <set>

#include "support/catch.hpp"
#include "support/loop.hpp"
#include "support/scripted_volumes.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

/// Many volumes whose answers come at once, as those of volumes that need nothing do.
class ManyVolumes final : public test::ScriptedVolumes {
 public:
  explicit ManyVolumes(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      auto& volume = all.emplace_back();
      volume.volume_id = std::to_string(i);
      volume.cluster_id = "lab";
      places_[volume.volume_id] = i;
    }
  }
  std::optional<volume::Status> status(const std::string& id) const override { return all.at(places_.at(id)); }
  std::vector<volume::Status> status() const override { return all; }

 private:
  std::map<std::string, std::size_t> places_;
};

/// When a healer of default settings tries a volume that always fails.
std::vector<time_point> tries(heal::Config config) {
  test::Loop loop;
  ManyVolumes volumes(1);
  volumes.outcome = Error{errc::lost, "as asked for"};
  heal::Healer healer(loop.control(), loop.clock, volumes, std::move(config));
  std::vector<time_point> at;
  healer.start();
  for (std::size_t seen = 0; at.size() < 6;) {
    loop.step();
    if (volumes.wishes.size() > seen) at.push_back(loop.clock.now());
    seen = volumes.wishes.size();
  }
  loop.run(healer.stop());
  return at;
}

}  // namespace

TEST_CASE("two healers of two nodes try again at different times") { CHECK(tries({}) != tries({})); }

TEST_CASE("two healers with the same jitter try at the same times") {
  heal::Config one, other;
  one.jitter = repeatable_jitter(7);
  other.jitter = repeatable_jitter(7);
  CHECK(tries(one) == tries(other));
}

TEST_CASE("once one volume is healed after a fence of the node, the others are tried at once") {
  test::Loop loop;
  ManyVolumes volumes(20);
  for (auto& one : volumes.all) one.unserved = true;
  volumes.outcome = Error{errc::node_fenced, "as asked for"};
  heal::Healer healer(loop.control(), loop.clock, volumes, {});
  healer.start();
  loop.advance(10min);
  volumes.outcome = {};
  const auto before = volumes.wishes.size();
  while (volumes.wishes.size() == before) loop.step();
  loop.advance(10ms);
  CHECK(volumes.wishes.size() == before + 20);
  loop.run(healer.stop());
}

TEST_CASE("while a pool is full, one volume at a time asks for all of the cluster") {
  test::Loop loop;
  ManyVolumes volumes(20);
  for (auto& one : volumes.all) one.unserved = true;
  volumes.outcome = Error{errc::pool_full, "as asked for"};
  heal::Config config;
  config.jitter = repeatable_jitter(7);
  heal::Healer healer(loop.control(), loop.clock, volumes, config);
  healer.start();
  loop.advance(1min);
  const auto before = volumes.wishes.size();
  loop.advance(10min);
  CHECK(volumes.wishes.size() < before + 40);
  loop.run(healer.stop());
}

TEST_CASE("a start checks each of twenty thousand healthy volumes once") {
  test::Loop loop;
  ManyVolumes volumes(20'000);
  heal::Config config;
  config.queue.at_once = 2000;
  heal::Healer healer(loop.control(), loop.clock, volumes, config);
  healer.start();
  loop.poll();
  CHECK(volumes.wishes.size() == 20'000);
  loop.run(healer.stop());
}
