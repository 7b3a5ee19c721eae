// Filesystems at their stage.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

TEST_CASE("a filesystem smaller than its device grows at stage, but not where nobody may write") {
  Model model = staged_model();
  model.record->stagings.front().complete = false;
  model.seen.devices.front().size = kTwo;
  SECTION("writable") {
    const auto kinds = run(model, Wish(staged_wish()));
    REQUIRE(kinds);
    CHECK(*kinds == std::vector{Kind::look, Kind::write_stash, Kind::look, Kind::grow, Kind::look, Kind::write_record});
  }
  SECTION("read-only") {
    model.seen.mounts.front().filesystem_read_only = true;
    const auto kinds = run(model, Wish(staged_wish()));
    REQUIRE(kinds);
    CHECK(*kinds == std::vector{Kind::look, Kind::write_stash, Kind::look, Kind::write_record});
  }
}
