#include "probe.hpp"

#include "support/catch.hpp"

using namespace corbd;

TEST_CASE("the counters are read as they were added") {
  nbd::Probe probe;
  nbd::Probe::add(probe.requests.at(1));
  nbd::Probe::add(probe.refused);
  nbd::Probe::add(probe.image_errors);
  nbd::Probe::add(probe.held);
  nbd::Probe::add(probe.broken);
  nbd::Probe::add(probe.budget_waits);
  nbd::Probe::add(probe.links_dead);
  nbd::Probe::add(probe.links_dead);
  const auto now = probe.read();
  CHECK(now.requests == std::array<std::uint64_t, 7>{0, 1});
  CHECK(std::array{now.refused, now.image_errors, now.held, now.broken, now.budget_waits, now.links_dead} ==
        std::array<std::uint64_t, 6>{1, 1, 1, 1, 1, 2});
}
