#include "corbd/core/failpoint.hpp"

#include <algorithm>

#include "steps.hpp"
#include "support/catch.hpp"

using namespace corbd;

TEST_CASE("failpoints exist before and after every step and inside each step with two effects, and nowhere else") {
  const auto points = failpoint::names();
  CHECK(points.size() == 2 * std::variant_size_v<plan::Step> + 4);
  CHECK(std::ranges::count(points, "step.lock.broken") == 1);
  CHECK(std::ranges::count(points, "step.evict.fenced") == 1);
  CHECK(std::ranges::count(points, "step.new_key.added") == 1);
  CHECK(std::ranges::count(points, "step.kernel_resize.asked") == 1);
  for (const auto name : plan::step_names) {
    CHECK(std::ranges::count(points, "step." + std::string(name) + ".before") == 1);
    CHECK(std::ranges::count(points, "step." + std::string(name) + ".after") == 1);
  }
  CHECK(volume::step_places().size() == points.size());
}
