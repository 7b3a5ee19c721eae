// FIFREEZE and FITHAW. Only filesystems of the test's own are ever frozen.
#include "ground.hpp"
#include "ops.hpp"

using namespace corbd;
using namespace std::chrono_literals;
namespace ops = corbd::host::ops;

namespace {

time_point in(duration time) { return std::chrono::steady_clock::now() + time; }

/// A mounted ext4, which is thawed and unmounted at the end.
struct Mounted {
  static std::optional<Mounted> make(const std::string& folder) {
    auto device = test::LoopDevice::attach(test::make_image(folder + "/image"));
    if (!device) return std::nullopt;
    REQUIRE(ops::mkfs(device->path(), "ext4", ""));
    REQUIRE(ops::mount(device->path(), "ext4", folder + "/target", ""));
    return Mounted{std::move(*device)};
  }
  test::LoopDevice device;
};

}  // namespace

TEST_CASE("a freeze is answered with nothing, a second one is refused, and the thaw says whether there was one") {
  if (!test::may_mount()) return;
  test::Folder folder;
  const auto mounted = Mounted::make(folder.path());
  if (!mounted) return;
  const std::string target = folder.path() + "/target";
  const auto first = ops::freeze(target, in(1min)), second = ops::freeze(target, in(1min));
  const auto thawed = ops::thaw(target), again = ops::thaw(target);
  REQUIRE(ops::unmount(target));
  CHECK(first.value().empty());
  CHECK_THAT(second.value(), Catch::Matchers::ContainsSubstring("somebody else has frozen"));
  CHECK(thawed.value());
  CHECK_FALSE(again.value());
}

TEST_CASE("a freeze whose time has passed freezes nothing") {
  if (!test::may_mount()) return;
  test::Folder folder;
  const auto mounted = Mounted::make(folder.path());
  if (!mounted) return;
  const std::string target = folder.path() + "/target";
  const auto late = ops::freeze(target, in(-1s));
  const auto thawed = ops::thaw(target);
  REQUIRE(ops::unmount(target));
  CHECK_THAT(late.value(), Catch::Matchers::ContainsSubstring("not written in time"));
  CHECK_FALSE(thawed.value());
}

TEST_CASE("a freeze that ends after its time is thawed by whoever made it, because nobody may be there any more") {
  if (!test::may_mount()) return;
  test::Folder folder;
  const auto mounted = Mounted::make(folder.path());
  if (!mounted) return;
  const std::string target = folder.path() + "/target";
  static int looks = 0;
  looks = 0;
  const auto late = ops::freeze(target, in(0s), [] { return looks++ == 0 ? time_point{} : time_point::max(); });
  const auto thawed = ops::thaw(target);
  REQUIRE(ops::unmount(target));
  CHECK_THAT(late.value(), Catch::Matchers::ContainsSubstring("not frozen in time"));
  CHECK_FALSE(thawed.value());
}

TEST_CASE("a filesystem that cannot be frozen, and a path without a mount, are refused") {
  if (!test::may_mount()) return;
  test::Folder folder;
  const std::string target = folder.path() + "/target";
  CHECK_FALSE(ops::freeze(folder.path(), in(1min)).value().empty());
  REQUIRE(ops::mount("source", "tmpfs", target, ""));
  const auto frozen = ops::freeze(target, in(1min));
  REQUIRE(ops::unmount(target));
  CHECK_THAT(frozen.value(), Catch::Matchers::ContainsSubstring("cannot be frozen"));
}
