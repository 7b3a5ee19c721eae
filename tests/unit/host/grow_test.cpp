#include <linux/capability.h>
#include <sys/prctl.h>

#include <filesystem>
#include <fstream>

#include "filesystem_types.hpp"
#include "ground.hpp"
#include "ops.hpp"

using namespace corbd;
using corbd::test::FakeTool;
using corbd::test::Folder;
using corbd::test::make_image;
namespace ops = corbd::host::ops;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// Of ext4 alone, which asks for CAP_SYS_RESOURCE.
bool may_resize() {
  const bool allowed = ::prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE) == 1;
  if (!allowed) WARN("skipped: no capability to resize");
  return allowed;
}

struct Extents {
  host::Extent before, after;
};

/// A filesystem in a file of `mib`, mounted through a loop device, which then doubles.
std::optional<Extents> grown(const std::string& fstype, std::uint64_t mib) {
  Folder folder;
  const std::string target = folder.path() + "/target";
  const std::string image = make_image(folder.path() + "/image", static_cast<off_t>(mib * kMiB));
  const auto device = test::LoopDevice::attach(image);
  if (!device) return std::nullopt;
  REQUIRE(ops::mkfs(device->path(), fstype, ""));
  if (const auto mounted = ops::mount(device->path(), fstype, target, ""); !mounted) {
    WARN("skipped: " << mounted.error().text);
    return std::nullopt;
  }
  const auto before = ops::extent(device->path(), fstype, target);
  std::filesystem::resize_file(image, 2 * mib * kMiB);
  device->follow();
  const auto done = ops::grow(device->path(), fstype, target);
  const auto after = ops::extent(device->path(), fstype, target);
  REQUIRE(ops::unmount(target));
  INFO((done ? "" : done.error().text));
  CHECK(done);
  REQUIRE(before);
  REQUIRE(after);
  return Extents{*before, *after};
}

}  // namespace

TEST_CASE("the superblock of an ext filesystem tells how large it is, whatever its blocks") {
  for (const auto* options : {"", "-q -b 1024", "-q -b 4096 -O ^64bit", "-q -b 2048 -O 64bit"}) {
    Folder folder;
    const std::string path = make_image(folder.path() + "/image");
    REQUIRE(ops::mkfs(path, "ext4", options));
    const auto found = ops::extent(path, "ext4", "");
    REQUIRE(found);
    CHECK(found->bytes == 64 * kMiB);
    CHECK(64 * kMiB % found->block_bytes == 0);
  }
}

TEST_CASE("a filesystem smaller than its device is reported with its own size") {
  Folder folder;
  const std::string path = make_image(folder.path() + "/image");
  REQUIRE(ops::mkfs(path, "ext4", ""));
  std::filesystem::resize_file(path, 128 * kMiB);
  CHECK(ops::extent(path, "ext4", "")->bytes == 64 * kMiB);
}

TEST_CASE("a device without a superblock has no filesystem size") {
  Folder folder;
  CHECK(ops::extent(make_image(folder.path() + "/image"), "ext4", "").error().code == errc::failed_precondition);
  CHECK_FALSE(ops::extent(make_image(folder.path() + "/short", 1500), "ext4", ""));
  CHECK_FALSE(ops::extent("", "xfs", folder.path()));
  CHECK_FALSE(ops::extent("", "btrfs", folder.path()));
}

TEST_CASE("each filesystem is grown by its own tool") {
  struct Row {
    const char *fstype, *tool, *arguments;
  };
  for (const auto& [fstype, tool, arguments] :
       {Row{"ext3", "resize2fs", "/dev/x"}, Row{"ext4", "resize2fs", "/dev/x"}, Row{"xfs", "xfs_growfs", "-d /t"},
        Row{"btrfs", "btrfs", "filesystem resize max /t"}}) {
    Folder folder;
    const std::string seen = folder.path() + "/seen";
    const FakeTool fake(tool, "echo \"$@\" > " + seen);
    REQUIRE(ops::grow("/dev/x", fstype, "/t"));
    std::string told;
    std::getline(std::ifstream(seen), told);
    CHECK(told == arguments);
  }
}

TEST_CASE("a filesystem that nobody knows how to grow is named") {
  CHECK(ops::grow("/dev/x", "zonefs", "/t").error().code == errc::unimplemented);
  CHECK_THAT(ops::extent("/dev/x", "zonefs", "/t").error().text, ContainsSubstring("zonefs"));
}

TEST_CASE("a tool that cannot grow a filesystem is quoted, and one that was killed can be tried again") {
  {
    const FakeTool fake("resize2fs", "echo no space for the inode tables >&2; exit 1");
    const auto done = ops::grow("/dev/x", "ext4", "/t");
    REQUIRE_FALSE(done);
    CHECK(done.error().code == errc::failed_precondition);
    CHECK_THAT(done.error().text, ContainsSubstring("no space for the inode tables"));
  }
  const FakeTool fake("xfs_growfs", "kill -9 $$");
  CHECK(ops::grow("/dev/x", "xfs", "/t").error().code == errc::unavailable);
}

TEST_CASE("a mounted ext4 tells its size and grows to its device") {
  if (!test::may_mount() || !may_resize()) return;
  const auto seen = grown("ext4", 64);
  if (!seen) return;
  CHECK(seen->before.bytes == 64 * kMiB);
  CHECK(seen->after.bytes == 128 * kMiB);
}

TEST_CASE("a mounted ext4 grows without resize2fs, whose first mount of the device may be a read-only one",
          "[failure:253]") {
  if (!test::may_mount() || !may_resize()) return;
  const FakeTool tool("resize2fs", "echo open: Device or resource busy >&2; exit 1");
  const auto seen = grown("ext4", 64);
  if (!seen) return;
  CHECK(seen->after.bytes == 128 * kMiB);
}

TEST_CASE("an ext4 grows to whole pages, and without 64bit no further than resize2fs lets it", "[failure:253]") {
  struct Row {
    std::uint64_t bytes;
    std::uint32_t block, page;
    bool is_64bit;
    std::optional<std::uint64_t> blocks;
  };
  constexpr std::uint64_t beyond = std::uint64_t{1} << 32;
  for (const auto& row :
       {Row{64 * kMiB, 4096, 4096, true, 16384}, Row{64 * kMiB + 512, 4096, 4096, true, 16384},
        Row{64 * kMiB + 3 * 1024, 1024, 4096, true, 65536}, Row{64 * kMiB + 8192, 4096, 65536, true, 16384},
        Row{64 * kMiB, 65536, 4096, true, 1024}, Row{beyond * 1024, 1024, 4096, true, beyond},
        Row{beyond * 1024 - 4096, 1024, 4096, false, beyond - 4}, Row{beyond * 1024, 1024, 4096, false, beyond - 1},
        Row{beyond * 1024 + 4096, 1024, 4096, false, std::nullopt},
        Row{beyond * 8192, 4096, 4096, false, std::nullopt}}) {
    CAPTURE(row.bytes, row.block);
    CHECK(host::resize2fs_blocks(row.bytes, row.block, row.page, row.is_64bit) == row.blocks);
  }
}

TEST_CASE("a mounted ext4 with errors is not grown, and the error says that its next stage checks it", "[failure:47]") {
  if (!test::may_mount()) return;
  Folder folder;
  const std::string target = folder.path() + "/target", image = make_image(folder.path() + "/image");
  REQUIRE(ops::mkfs(image, "ext4", "-O ^metadata_csum"));
  constexpr off_t state = 1024 + 0x3a;
  test::overwrite(image, state, "\x03");
  std::filesystem::resize_file(image, 128 * kMiB);
  const auto device = test::LoopDevice::attach(image);
  if (!device) return;
  REQUIRE(ops::mount(device->path(), "ext4", target, ""));
  const auto grown = ops::grow(device->path(), "ext4", target);
  REQUIRE_FALSE(grown);
  CHECK(grown.error().code == errc::failed_precondition);
  CHECK_THAT(grown.error().text, ContainsSubstring("it has errors") && ContainsSubstring("Its next stage checks"));
  REQUIRE(ops::unmount(target));
}

TEST_CASE("the filesystem of another device is not grown in the place of the one that is meant", "[failure:253]") {
  if (!test::may_mount() || !may_resize()) return;
  Folder folder;
  const std::string target = folder.path() + "/target", image = make_image(folder.path() + "/image");
  const auto device = test::LoopDevice::attach(image);
  const auto other = test::LoopDevice::attach(make_image(folder.path() + "/other", 128 * kMiB));
  if (!device || !other) return;
  REQUIRE(ops::mkfs(device->path(), "ext4", ""));
  REQUIRE(ops::mkfs(other->path(), "ext4", ""));
  REQUIRE(ops::mount(device->path(), "ext4", target, ""));
  std::filesystem::resize_file(image, 128 * kMiB);
  device->follow();
  const FakeTool tool("resize2fs", "exit 1");
  CHECK_FALSE(ops::grow(other->path(), "ext4", target));
  CHECK(ops::extent(device->path(), "ext4", target)->bytes == 64 * kMiB);
  REQUIRE(ops::unmount(target));
}

TEST_CASE("a mounted xfs tells its size and grows to its device") {
  if (!test::may_mount()) return;
  const auto seen = grown("xfs", 320);
  if (!seen) return;
  CHECK(seen->before.bytes == 320 * kMiB);
  CHECK(seen->after.bytes == 640 * kMiB);
}

TEST_CASE("a mount tells how full it is") {
  if (!test::may_mount()) return;
  Folder folder;
  const std::string target = folder.path() + "/target";
  REQUIRE(ops::mount("source", "tmpfs", target, "size=1m,nr_inodes=100"));
  std::ofstream(target + "/file") << std::string(8192, 'x');
  const auto usage = ops::usage(target);
  REQUIRE(ops::unmount(target));
  REQUIRE(usage);
  CHECK(usage->bytes == kMiB);
  CHECK(usage->bytes_used == 8192);
  CHECK(usage->bytes_available == kMiB - 8192);
  CHECK(usage->inodes == 100);
  CHECK(usage->inodes_used == 2);
  CHECK(usage->inodes_available == 98);
}

TEST_CASE(
    "a filesystem that cannot discard causes an error, and without a mount the node's own filesystem is left alone") {
  if (!test::may_mount()) return;
  Folder folder;
  const std::string target = folder.path() + "/target";
  CHECK(ops::trim(folder.path()).error().code == errc::not_found);
  REQUIRE(ops::mount("source", "tmpfs", target, ""));
  const auto trimmed = ops::trim(target);
  REQUIRE(ops::unmount(target));
  CHECK(trimmed.error().code == errc::unimplemented);
}

TEST_CASE("a mounted ext4 gives back what it does not use") {
  if (!test::may_mount()) return;
  Folder folder;
  const std::string target = folder.path() + "/target";
  const auto device = test::LoopDevice::attach(make_image(folder.path() + "/image"));
  if (!device) return;
  REQUIRE(ops::mkfs(device->path(), "ext4", ""));
  REQUIRE(ops::mount(device->path(), "ext4", target, ""));
  const auto trimmed = ops::trim(target);
  REQUIRE(ops::unmount(target));
  REQUIRE(trimmed);
  CHECK(*trimmed > 30 * kMiB);
}

TEST_CASE("the pieces of a trim end at the filesystem's end, and give back as much as a whole one") {
  if (!test::may_mount()) return;
  const std::string fstype = GENERATE("ext4", "xfs");
  REQUIRE(host::trims_in_pieces(fstype));
  Folder folder;
  const std::string target = folder.path() + "/target";
  const auto device = test::LoopDevice::attach(make_image(folder.path() + "/image", static_cast<off_t>(320 * kMiB)));
  if (!device) return;
  REQUIRE(ops::mkfs(device->path(), fstype, ""));
  const auto mounted = ops::mount(device->path(), fstype, target, "noatime");
  if (!mounted) {
    WARN("skipped: " << mounted.error().text);
    return;
  }
  std::uint64_t bytes = 0, from = 0;
  int pieces = 0;
  do {
    const auto piece = ops::trim_from(target, from, 64 * kMiB, std::chrono::milliseconds(0));
    REQUIRE(piece);
    CHECK((piece->next == 0 || piece->next > from));
    bytes += piece->bytes;
    from = piece->next;
  } while (from != 0 && ++pieces < 100);
  CHECK(from == 0);
  CHECK(pieces > 3);
  CHECK(bytes > 150 * kMiB);
  CHECK(ops::trim_from(target, std::uint64_t{1} << 40, 64 * kMiB)->next == 0);
  CHECK(ops::trim_from(folder.path(), 0).error().code == errc::not_found);
  REQUIRE(ops::unmount(target));
}

TEST_CASE("statistics of a path without a mount are not those of the node's own filesystem") {
  Folder folder;
  CHECK(ops::usage(folder.path()).error().code == errc::not_found);
  CHECK(ops::usage(folder.path() + "/nothing").error().code == errc::not_found);
}
