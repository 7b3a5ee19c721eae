// The filesystem in a stage.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

TEST_CASE("a stage grows a filesystem that is smaller than its device, unless the filesystem is read-only") {
  Model model = staged_model();
  model.record->stagings.front().complete = false;
  model.seen.devices.front().size = kTwo;
  SECTION("writable") {
    const auto steps = run(model, Wish(staged_wish()));
    REQUIRE(steps);
    CHECK(*steps == std::vector<Step>{step::Look{Fact::stash}, step::WriteStash{kPath, {}},
                                      step::Look{Fact::filesystem, kTarget}, step::Grow{kTarget},
                                      step::Look{Fact::format_marker}, step::WriteRecord{}});
  }
  SECTION("read-only") {
    model.seen.mounts.front().filesystem_read_only = true;
    const auto steps = run(model, Wish(staged_wish()));
    REQUIRE(steps);
    CHECK(*steps == std::vector<Step>{step::Look{Fact::stash}, step::WriteStash{kPath, {}},
                                      step::Look{Fact::format_marker}, step::WriteRecord{}});
  }
}
