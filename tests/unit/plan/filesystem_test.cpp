// The filesystem in a stage.
#include <algorithm>

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

TEST_CASE(
    "mkfsOptions that reach beyond the volume are refused before a format, and hinder no filesystem that is there") {
  Model model = fresh();
  model.image_has_filesystem = GENERATE(false, true);
  model.image_has_data = model.image_has_filesystem;
  auto wish = staged_wish();
  wish.source.mkfs_options = "-d /run/corbd/keys";
  Decision last = Done{};
  const auto steps = run(model, Wish(wish), &last);
  REQUIRE(steps);
  CHECK(std::ranges::find(*steps, Step(step::Mkfs{})) == steps->end());
  CHECK(failure(last) == (model.image_has_filesystem ? errc::ok : errc::invalid_argument));
  if (!model.image_has_filesystem) CHECK(std::get<Refusal>(last).error.text.starts_with("volume " + kId));
}

TEST_CASE("a mount option that names another device is refused before anything is done, unless the volume is mounted") {
  auto wish = staged_wish();
  wish.capability.mount_flags = "noatime,logdev=/dev/nbd7";
  const auto refused = fresh().decide(Wish(wish));
  CHECK(failure(refused) == errc::invalid_argument);
  CHECK(std::get<Refusal>(refused).error.text.starts_with("volume " + kId));
  CHECK(std::holds_alternative<Done>(staged_model().decide(Wish(wish))));
}
