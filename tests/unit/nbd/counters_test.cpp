#include "counters.hpp"

#include "support/catch.hpp"

using namespace corbd;

TEST_CASE("the counters are read as they were added") {
  nbd::Counters counters;
  counters.add_request(1);
  for (const auto& metric : device::kCountMetrics) counters.add(metric.count);
  counters.add(device::Count::links_dead);
  const auto now = counters.read();
  CHECK(now.requests == std::array<std::uint64_t, 7>{0, 1});
  for (const auto& metric : device::kCountMetrics)
    CHECK(now.of(metric.count) == (metric.count == device::Count::links_dead ? 2 : 1));
}
