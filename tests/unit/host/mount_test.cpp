#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "filesystem_types.hpp"
#include "ground.hpp"
#include "mount_reader.hpp"
#include "mountinfo.hpp"
#include "ops.hpp"
#include "target.hpp"

using namespace corbd;
using corbd::host::Mount;
using Way = corbd::host::MountReader::Way;
using corbd::test::Folder;
using corbd::test::may_mount;
namespace fs = std::filesystem;
namespace ops = corbd::host::ops;

namespace {

// Unmounts at its end whatever a failed test left, so that the folder can go.
struct Place {
  ~Place() {
    for (const auto& path : {other, target})
      while (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
      }
  }
  result<> mount_tmpfs(const std::string& flags = "", const std::string& source = "source") {
    return ops::mount(source, "tmpfs", target, flags);
  }
  Folder folder;
  std::string target = folder.path() + "/target";
  std::string other = folder.path() + "/other";
};

std::vector<Mount> mounts_at(const std::string& target) {
  auto all = host::read_mountinfo("/proc/self/mountinfo").value();
  std::erase_if(all, [&](const Mount& mount) { return mount.target != target; });
  return all;
}

bool has(const std::string& options, const std::string& option) {
  return ("," + options + ",").find("," + option + ",") != std::string::npos;
}

void write_file(const std::string& path) { std::ofstream(path) << "content"; }

}  // namespace

TEST_CASE("a mount makes its target and has the flags asked for") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs("nodev,noexec,noatime,_netdev,size=1m"));
  const auto mounts = mounts_at(place.target);
  REQUIRE(mounts.size() == 1);
  CHECK(mounts[0].source == "source");
  for (const auto* flag : {"nodev", "noexec", "noatime", "rw"}) CHECK(has(mounts[0].options, flag));
  CHECK(!has(mounts[0].options, "nosuid"));
}

TEST_CASE("a mount and a bind run nothing as another user and show no device where their flags say so") {
  if (!may_mount()) return;
  Place place;
  const bool bound = GENERATE(false, true);
  REQUIRE(place.mount_tmpfs(bound ? "" : "nosuid,nodev"));
  if (bound) REQUIRE(ops::bind(place.target, place.other, false, "suid,nosuid,nodev"));
  const std::string& target = bound ? place.other : place.target;
  struct statvfs shown{};
  REQUIRE(::statvfs(target.c_str(), &shown) == 0);
  CHECK((shown.f_flag & ST_NOSUID) != 0);
  CHECK((shown.f_flag & ST_NODEV) != 0);
  const std::string device = target + "/null";
  if (::mknod(device.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) return;  // nor may anybody else here
  CHECK_FALSE(Fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC)));
  CHECK(errno == EACCES);
}

TEST_CASE("a target made for a mount is 0750") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs());
  REQUIRE(::umount2(place.target.c_str(), 0) == 0);
  CHECK(fs::status(place.target).permissions() == fs::perms(0750));
}

TEST_CASE("mounting the same again changes nothing") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs());
  CHECK(place.mount_tmpfs());
  CHECK(mounts_at(place.target).size() == 1);
}

TEST_CASE("mounting over something else is refused") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs());
  CHECK(place.mount_tmpfs("", "another").error().code == errc::failed_precondition);
  CHECK(mounts_at(place.target).size() == 1);
}

TEST_CASE("a mount option that the filesystem does not know is named") {
  if (!may_mount()) return;
  Place place;
  const auto mounted = place.mount_tmpfs("nosuchoption=1");
  REQUIRE(!mounted);
  CHECK(mounted.error().code == errc::failed_precondition);
  CHECK_THAT(mounted.error().text, ContainsSubstring("nosuchoption"));
  CHECK(mounts_at(place.target).empty());
}

TEST_CASE("a filesystem that the kernel does not know is named") {
  if (!may_mount()) return;
  Place place;
  const auto mounted = ops::mount("source", "nosuchfs", place.target, "");
  REQUIRE(!mounted);
  CHECK(mounted.error().code == errc::failed_precondition);
  CHECK_THAT(mounted.error().text, ContainsSubstring("nosuchfs"));
}

TEST_CASE("a target that is a link is refused") {
  if (!may_mount()) return;
  Place place;
  fs::create_directory(place.other);
  fs::create_symlink(place.other, place.target);
  CHECK(place.mount_tmpfs().error().code == errc::invalid_argument);
  CHECK(ops::bind(place.folder.path(), place.target, false, "").error().code == errc::invalid_argument);
  CHECK(ops::unmount(place.target).error().code == errc::invalid_argument);
  CHECK(mounts_at(place.other).empty());
}

TEST_CASE("nothing is unmounted, mounted or removed through a link that a parent has become", "[rule:14]") {
  if (!may_mount()) return;
  Place place;
  const std::string base = fs::canonical(place.folder.path());
  fs::create_directories(base + "/own/a");
  fs::create_directories(base + "/roots/a");
  REQUIRE(ops::mount("tmpfs", "tmpfs", base + "/roots/a", ""));
  fs::rename(base + "/own", base + "/was");
  fs::create_directory_symlink(base + "/roots", base + "/own");
  CHECK(ops::unmount(base + "/own/a").error().code == errc::invalid_argument);
  CHECK(mounts_at(base + "/roots/a").size() == 1);
  for (const bool file : {true, false})
    CHECK(ops::bind(base + "/was", base + "/own/new", file, "").error().code == errc::invalid_argument);
  CHECK_FALSE(fs::exists(base + "/roots/new"));
  REQUIRE(ops::unmount(base + "/roots/a"));
  fs::create_directories(base + "/roots/a");
  CHECK(ops::unmount(base + "/own/a").error().code == errc::invalid_argument);
  CHECK(fs::exists(base + "/roots/a"));
}

TEST_CASE("a block device is mounted, found again by its number, and unmounted") {
  if (!may_mount()) return;
  Place place;
  const auto device = test::LoopDevice::attach(test::make_image(place.folder.path() + "/image"));
  if (!device) return;
  REQUIRE(ops::mkfs(device->path(), "ext4", ""));
  REQUIRE(ops::mount(device->path(), "ext4", place.target, "discard,noatime"));
  write_file(place.target + "/file");
  CHECK(ops::mount(device->path(), "ext4", place.target, "discard,noatime"));
  REQUIRE(ops::unmount(place.target));
  CHECK(!fs::exists(place.target));
  REQUIRE(ops::mount(device->path(), "ext4", place.target, "ro"));
  CHECK(mounts_at(place.target).at(0).read_only);
  CHECK(fs::exists(place.target + "/file"));
  CHECK(ops::unmount(place.target));
}

TEST_CASE("the root folder of a filesystem keeps its owner and mode over an unmount and the next mount") {
  if (!may_mount()) return;
  Place place;
  const auto device = test::LoopDevice::attach(test::make_image(place.folder.path() + "/image"));
  if (!device) return;
  REQUIRE(ops::mkfs(device->path(), "ext4", ""));
  REQUIRE(ops::mount(device->path(), "ext4", place.target, ""));
  struct stat root{};
  REQUIRE(::stat(place.target.c_str(), &root) == 0);
  CHECK((root.st_mode & 07777) == 0755);
  REQUIRE(::chown(place.target.c_str(), 0, 1000) == 0);
  REQUIRE(::chmod(place.target.c_str(), 02775) == 0);
  REQUIRE(ops::unmount(place.target));
  REQUIRE(ops::mount(device->path(), "ext4", place.target, "discard"));
  REQUIRE(::stat(place.target.c_str(), &root) == 0);
  CHECK((root.st_mode & 07777) == 02775);
  CHECK(root.st_gid == 1000);
  CHECK(ops::unmount(place.target));
}

TEST_CASE("two xfs filesystems with one UUID are mounted side by side") {
  if (!may_mount()) return;
  Place place;
  const std::string image = test::make_image(place.folder.path() + "/image", 400L * 1024 * 1024),
                    copy = place.folder.path() + "/copy";
  REQUIRE(ops::mkfs(image, "xfs", ""));
  fs::copy_file(image, copy);
  const auto first = test::LoopDevice::attach(image);
  const auto second = test::LoopDevice::attach(copy);
  if (!first || !second) return;
  REQUIRE(ops::mount(first->path(), "xfs", place.target, ""));
  CHECK(ops::mount(second->path(), "xfs", place.other, ""));
  CHECK(ops::unmount(place.other));
  CHECK(ops::unmount(place.target));
}

/// A new xfs at the place's target; nothing where there are no loop devices.
auto mount_xfs(const Place& place) {
  auto device = test::LoopDevice::attach(test::make_image(place.folder.path() + "/image", 400L * 1024 * 1024));
  if (!device) return device;
  REQUIRE(ops::mkfs(device->path(), "xfs", ""));
  REQUIRE(ops::mount(device->path(), "xfs", place.target, ""));
  return device;
}

/// XFS_IOC_GOINGDOWN. With XFS_FSOP_GOING_FLAGS_LOGFLUSH the log has the changes, and nothing else does.
void shut_down(const std::string& mounted) {
  const Fd root(::open(mounted.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::uint32_t log_flush = 1;
  REQUIRE(::ioctl(root.get(), _IOR('X', 125, std::uint32_t), &log_flush) == 0);
}

TEST_CASE("an xfs that has shut down is unmounted, although it answers nothing any more", "[failure:258]") {
  if (!may_mount()) return;
  Place place;
  const auto device = mount_xfs(place);
  if (!device) return;
  REQUIRE(ops::bind(place.target, place.other, false, ""));
  shut_down(place.target);
  struct stat root{};
  CHECK(::stat(place.target.c_str(), &root) != 0);
  CHECK(ops::unmount(place.other));
  CHECK(ops::unmount(place.target));
  CHECK(mounts_at(place.target).empty());
  CHECK_FALSE(fs::exists(place.target));
}

TEST_CASE("a link that cannot be read is not taken for a folder where nothing is mounted") {
  if (!may_mount()) return;
  Place place;
  const auto device = mount_xfs(place);
  if (!device) return;
  const std::string link = place.target + "/link";
  fs::create_symlink(std::string(1000, 'x'), link);  // too long for its inode
  shut_down(place.target);
  const auto opened = host::open_mounted(link);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code != errc::not_found);
  CHECK(ops::unmount(place.target));
}

TEST_CASE("a filesystem that has shut down is not bound for its next user, and the error says what to do",
          "[failure:258]") {
  if (!may_mount()) return;
  Place place;
  const auto device = mount_xfs(place);
  if (!device) return;
  shut_down(place.target);
  const auto bound = ops::bind(place.target, place.other, false, "");
  REQUIRE(!bound);
  CHECK(bound.error().code == errc::failed_precondition);
  CHECK_THAT(bound.error().text, ContainsSubstring("so that it is unstaged"));
  CHECK(mounts_at(place.other).empty());
  CHECK(ops::unmount(place.target));
}

TEST_CASE("an xfs that was cut off with changes in its log passes its check and is mounted", "[failure:258]") {
  if (!may_mount()) return;
  Place place;
  const auto device = mount_xfs(place);
  if (!device) return;
  write_file(place.target + "/file");
  shut_down(place.target);
  REQUIRE(ops::unmount(place.target));
  CHECK(ops::fsck(device->path(), "xfs", ""));
  REQUIRE(ops::mount(device->path(), "xfs", place.target, ""));
  CHECK(fs::exists(place.target + "/file"));
  CHECK(ops::unmount(place.target));
}

TEST_CASE("a read-only device whose filesystem was copied while it was mounted is refused with both ways out",
          "[failure:251]") {
  if (!may_mount()) return;
  struct Row {
    const char *fstype, *option;
    long mib;
  };
  const auto row = GENERATE(Row{"ext4", "noload", 64}, Row{"xfs", "norecovery", 400});
  Place place;
  const std::string image = test::make_image(place.folder.path() + "/image", row.mib * 1024 * 1024),
                    copy = place.folder.path() + "/copy";
  REQUIRE(ops::mkfs(image, row.fstype, ""));
  const auto used = test::LoopDevice::attach(image);
  if (!used) return;
  REQUIRE(ops::mount(used->path(), row.fstype, place.target, ""));
  std::ofstream(place.target + "/file") << "x";
  ::sync();
  fs::copy_file(image, copy);
  REQUIRE(ops::unmount(place.target));
  const auto device = test::LoopDevice::attach(copy, true);
  REQUIRE(device);
  const auto refused = ops::mount(device->path(), row.fstype, place.target, "ro");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::failed_precondition);
  CHECK_THAT(refused.error().text,
             ContainsSubstring("Stage the volume writable once") && ContainsSubstring(row.option));
  CHECK(ops::mount(device->path(), row.fstype, place.target, std::string("ro,") + row.option));
  CHECK(ops::unmount(place.target));
}

TEST_CASE("a filesystem that lost its node is checked and mounted with what its journal holds") {
  if (!may_mount()) return;
  struct Row {
    const char* fstype;
    long mib;
  };
  const auto row = GENERATE(Row{"ext4", 64}, Row{"xfs", 400});
  Place place;
  const std::string image = test::make_image(place.folder.path() + "/image", row.mib * 1024 * 1024),
                    copy = place.folder.path() + "/copy";
  REQUIRE(ops::mkfs(image, row.fstype, ""));
  const auto used = test::LoopDevice::attach(image);
  if (!used) return;
  REQUIRE(ops::mount(used->path(), row.fstype, place.target, ""));
  std::ofstream(place.target + "/file") << "x";
  ::sync();
  fs::copy_file(image, copy);
  REQUIRE(ops::unmount(place.target));
  const auto device = test::LoopDevice::attach(copy);
  REQUIRE(device);
  CHECK(ops::fsck(device->path(), row.fstype, ""));
  REQUIRE(ops::mount(device->path(), row.fstype, place.target, ""));
  CHECK(fs::exists(place.target + "/file"));
  CHECK(ops::unmount(place.target));
}

TEST_CASE("a filesystem with a feature of another kernel is refused, and the error names the feature",
          "[failure:252]") {
  if (!may_mount()) return;
  Place place;
  const std::string image = test::make_image(place.folder.path() + "/image");
  REQUIRE(ops::mkfs(image, "ext4", "-q -O ^metadata_csum"));
  const auto before = test::LoopDevice::attach(image);
  if (!before) return;
  REQUIRE(ops::mount(before->path(), "ext4", place.target, ""));
  REQUIRE(ops::unmount(place.target));
  test::overwrite(image, 1024 + 0x60 + 3, std::string("\x40", 1));
  const auto device = test::LoopDevice::attach(image);
  REQUIRE(device);
  const auto refused = ops::mount(device->path(), "ext4", place.target, "");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::failed_precondition);
  CHECK_THAT(refused.error().text, ContainsSubstring("does not know (0x40000000)"));
}

TEST_CASE("a damaged filesystem is refused for good with the tool that repairs it, and is as it was", "[failure:47]") {
  if (!may_mount()) return;
  struct Row {
    const char *fstype, *tool;
    long mib;
    off_t damaged;  ///< ext4: the first group descriptor; xfs: the label in the superblock
  };
  const auto row = GENERATE(Row{"ext4", "`e2fsck -f`", 64, 2048}, Row{"xfs", "`xfs_repair`", 400, 108});
  Place place;
  const std::string image = test::make_image(place.folder.path() + "/image", row.mib * 1024 * 1024);
  REQUIRE(ops::mkfs(image, row.fstype, ""));
  test::overwrite(image, row.damaged, std::string(8, '\xff'));
  const auto device = test::LoopDevice::attach(image);
  if (!device) return;
  const auto refused = ops::mount(device->path(), row.fstype, place.target, "");
  if (!refused && refused.error().text.starts_with("filesystem ")) return;  // the kernel does not have it
  REQUIRE_FALSE(refused);
  CAPTURE(refused.error().text);
  CHECK(refused.error().code == errc::failed_precondition);
  CHECK_THAT(refused.error().text, ContainsSubstring(row.tool) && ContainsSubstring("nothing was changed"));
}

TEST_CASE("a device without a filesystem fails to mount with the kernel's words") {
  if (!may_mount()) return;
  Place place;
  const auto device = test::LoopDevice::attach(test::make_image(place.folder.path() + "/image"));
  if (!device) return;
  const auto mounted = ops::mount(device->path(), "ext4", place.target, "");
  REQUIRE(!mounted);
  CHECK(mounted.error().code == errc::failed_precondition);
  CHECK_THAT(mounted.error().text, ContainsSubstring(device->path()));
}

TEST_CASE("a bind of a folder is of the same filesystem, read-only when asked for, and its source stays writable") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs());
  REQUIRE(ops::bind(place.target, place.other, false, "ro,noexec,_netdev,discard"));
  const auto source = mounts_at(place.target).at(0), bound = mounts_at(place.other).at(0);
  CHECK(bound.dev_minor == source.dev_minor);
  CHECK(bound.read_only);
  CHECK(has(bound.options, "noexec"));
  CHECK(!source.read_only);
  CHECK(!has(source.options, "noexec"));
}

TEST_CASE("binding the same again changes nothing") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs());
  REQUIRE(ops::bind(place.target, place.other, false, ""));
  CHECK(ops::bind(place.target, place.other, false, ""));
  CHECK(mounts_at(place.other).size() == 1);
}

TEST_CASE("binding over something else is refused") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs());
  REQUIRE(ops::mount("third", "tmpfs", place.other, ""));
  CHECK(ops::bind(place.target, place.other, false, "").error().code == errc::failed_precondition);
}

TEST_CASE("a folder with something in it is not mounted over, and keeps it") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs());
  fs::create_directory(place.other);
  write_file(place.other + "/precious");
  for (const auto& refused :
       {ops::bind(place.target, place.other, false, ""), ops::mount("third", "tmpfs", place.other, "")}) {
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::failed_precondition);
    CHECK_THAT(refused.error().text, ContainsSubstring("precious"));
  }
  CHECK(fs::exists(place.other + "/precious"));
}

TEST_CASE("a file where a folder is needed, or the reverse, is named and stays") {
  if (!may_mount()) return;
  Place place;
  write_file(place.target);
  const auto mounted = place.mount_tmpfs();
  REQUIRE(!mounted);
  CHECK(mounted.error().code == errc::failed_precondition);
  CHECK_THAT(mounted.error().text,
             ContainsSubstring(place.target + " is a file, but a filesystem needs a folder there"));
  fs::create_directory(place.other);
  const auto bound = ops::bind("/dev/zero", place.other, true, "");
  REQUIRE(!bound);
  CHECK(bound.error().code == errc::failed_precondition);
  CHECK_THAT(bound.error().text,
             ContainsSubstring(place.other + " is a folder, but a raw block volume needs a file there"));
  CHECK(fs::exists(place.target));
  CHECK(fs::exists(place.other));
}

TEST_CASE("the error for a target without a parent folder says so") {
  if (!may_mount()) return;
  Place place;
  place.target += "/not/there";
  const auto mounted = place.mount_tmpfs();
  REQUIRE(!mounted);
  CHECK_THAT(mounted.error().text, ContainsSubstring("whose parent folder does not exist"));
}

TEST_CASE("a device node is bound on a file of mode 0600 and shows itself as the root") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(ops::bind("/dev/zero", place.target, true, ""));
  CHECK(ops::bind("/dev/zero", place.target, true, ""));
  const auto mounts = mounts_at(place.target);
  REQUIRE(mounts.size() == 1);
  CHECK(mounts[0].root.ends_with("/zero"));
  REQUIRE(::umount2(place.target.c_str(), 0) == 0);
  CHECK(fs::status(place.target).permissions() == fs::perms(0600));
  CHECK(ops::unmount(place.target));
  CHECK(!fs::exists(place.target));
}

TEST_CASE("a device node that is gone is unmounted from where it is bound", "[failure:259]") {
  if (!may_mount()) return;
  Place place;
  const std::string node = place.folder.path() + "/node";
  write_file(node);  // to mount(2) it is the same
  REQUIRE(ops::bind(node, place.target, true, ""));
  REQUIRE(fs::remove(node));
  REQUIRE(mounts_at(place.target).size() == 1);
  CHECK(ops::unmount(place.target));
  CHECK(mounts_at(place.target).empty());
  CHECK_FALSE(fs::exists(place.target));
}

TEST_CASE("unmounting removes the mount and its empty folder") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs());
  write_file(place.target + "/file");
  REQUIRE(ops::unmount(place.target));
  CHECK(mounts_at(place.target).empty());
  CHECK(!fs::exists(place.target));
}

TEST_CASE("unmounting what is stacked removes every layer") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs());
  REQUIRE(::mount("upper", place.target.c_str(), "tmpfs", 0, nullptr) == 0);
  REQUIRE(ops::unmount(place.target));
  CHECK(!fs::exists(place.target));
}

TEST_CASE("a mount in use is not unmounted and says so") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs());
  write_file(place.target + "/file");
  Fd user(::open((place.target + "/file").c_str(), O_RDONLY | O_CLOEXEC));
  const auto refused = ops::unmount(place.target);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::in_use);
  CHECK(mounts_at(place.target).size() == 1);
  user.reset();
  CHECK(ops::unmount(place.target));
}

TEST_CASE("unmounting what does not exist is done already") {
  Place place;
  CHECK(ops::unmount(place.target));
}

TEST_CASE("unmounting an empty folder that is no mount removes it") {
  Place place;
  fs::create_directory(place.target);
  REQUIRE(ops::unmount(place.target));
  CHECK(!fs::exists(place.target));
}

TEST_CASE("a folder with content that is no mount stays", "[rule:11]") {
  Place place;
  fs::create_directory(place.target);
  write_file(place.target + "/file");
  CHECK(ops::unmount(place.target).error().code == errc::failed_precondition);
  CHECK(fs::exists(place.target + "/file"));
}

TEST_CASE("a file with content that is no mount stays", "[rule:11]") {
  Place place;
  write_file(place.target);
  CHECK(ops::unmount(place.target).error().code == errc::failed_precondition);
  CHECK(fs::exists(place.target));
}

TEST_CASE("the table of mounts follows every mount and unmount") {
  if (!may_mount()) return;
  Place place;
  host::MountReader table(std::chrono::seconds(10), GENERATE(Way::newest, Way::text));
  const auto shown = [&] { return table.read().value()->at(place.target).size(); };
  CHECK(shown() == 0);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(place.mount_tmpfs());
    CHECK(shown() == 1);
    CHECK(shown() == 1);
    REQUIRE(ops::unmount(place.target));
    CHECK(shown() == 0);
  }
}

TEST_CASE("a table of mounts that somebody holds stays as it is") {
  if (!may_mount()) return;
  Place place;
  host::MountReader table(std::chrono::seconds(10), GENERATE(Way::newest, Way::text));
  const auto held = table.read().value();
  const auto before = held->rows();
  REQUIRE(place.mount_tmpfs());
  REQUIRE(table.read().value()->rows().size() == before.size() + 1);
  CHECK(held->rows() == before);
  REQUIRE(ops::unmount(place.target));
}

TEST_CASE("a filesystem that silently turned read-only is noticed once the table of mounts is old") {
  if (!may_mount()) return;
  Place place;
  REQUIRE(place.mount_tmpfs());
  host::MountReader table(std::chrono::seconds(0), GENERATE(Way::newest, Way::text));
  const auto read_only = [&] {
    const auto all = table.read().value();
    const auto there = all->at(place.target);
    return std::ranges::any_of(there, [](const auto& mount) { return mount.second->filesystem_read_only; });
  };
  CHECK_FALSE(read_only());
  // As of an error: the superblock changes, no mount does.
  const Fd context(::fspick(AT_FDCWD, place.target.c_str(), FSPICK_CLOEXEC));
  REQUIRE(::fsconfig(context.get(), FSCONFIG_SET_FLAG, "ro", nullptr, 0) == 0);
  REQUIRE(::fsconfig(context.get(), FSCONFIG_CMD_RECONFIGURE, nullptr, nullptr, 0) == 0);
  CHECK(read_only());
  REQUIRE(ops::unmount(place.target));
}

TEST_CASE("a second filesystem with a UUID that is mounted is refused for good, with the reason and the way out") {
  const auto refused = host::mount_refusal("btrfs", "/dev/nbd3", EEXIST);
  REQUIRE(refused);
  CHECK(refused->code == errc::failed_precondition);
  CHECK_THAT(refused->text,
             ContainsSubstring("/dev/nbd3") && ContainsSubstring("UUID") && ContainsSubstring("btrfstune"));
  CHECK_FALSE(host::mount_refusal("btrfs", "/dev/nbd3", EINVAL));
  CHECK_FALSE(host::mount_refusal("ext4", "/dev/nbd3", EEXIST));
}
