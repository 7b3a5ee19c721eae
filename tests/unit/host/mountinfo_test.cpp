#include "mountinfo.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>

#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using corbd::host::Mount;

namespace {

result<std::vector<Mount>> parse(const std::string& lines) {
  const test::Folder folder;
  const std::string path = folder.path() + "/mountinfo";
  std::ofstream(path) << lines;
  return host::read_mountinfo(path);
}

}  // namespace

TEST_CASE("a filesystem's mount is read with its device and flags") {
  const auto mounts =
      parse("36 35 43:0 / /staging/v rw,nodev,noatime shared:1 master:2 - ext4 /dev/nbd0 rw,errors=continue\n");
  REQUIRE(mounts);
  REQUIRE(mounts->size() == 1);
  const Mount& mount = mounts->front();
  CHECK(mount.id == 36);
  CHECK(mount.dev_major == 43);
  CHECK(mount.dev_minor == 0);
  CHECK(mount.root == "/");
  CHECK(mount.target == "/staging/v");
  CHECK(mount.fstype == "ext4");
  CHECK(mount.source == "/dev/nbd0");
  CHECK(mount.options == "rw,nodev,noatime");
  CHECK(!mount.read_only);
}

TEST_CASE("a bind of a device node shows the node as its root") {
  const auto mounts = parse("40 35 0:5 /nbd3 /publish/v rw - devtmpfs udev rw,size=1k\n");
  REQUIRE(mounts);
  REQUIRE(mounts->size() == 1);
  CHECK(mounts->front().root == "/nbd3");
  CHECK(mounts->front().dev_major == 0);
}

TEST_CASE("only the mount's own flag makes it read-only") {
  const auto mounts = parse(
      "40 35 43:0 / /a ro,relatime - ext4 /dev/nbd0 rw\n"
      "41 35 43:0 / /b rw,relatime - ext4 /dev/nbd0 ro\n");
  REQUIRE(mounts);
  REQUIRE(mounts->size() == 2);
  CHECK(mounts->at(0).read_only);
  CHECK(!mounts->at(1).read_only);
}

TEST_CASE("a filesystem that is read-only below a mount that is not shows it") {
  const auto mounts = parse(
      "40 35 43:0 / /a ro,relatime - ext4 /dev/nbd0 rw,errors=remount-ro\n"
      "41 35 43:0 / /b rw,relatime - ext4 /dev/nbd0 ro,errors=remount-ro\n"
      "42 35 43:0 / /c rw,relatime - ext4 /dev/nbd0 rw,emergency_ro\n");
  REQUIRE(mounts);
  REQUIRE(mounts->size() == 3);
  CHECK(!mounts->at(0).filesystem_read_only);
  CHECK(mounts->at(1).filesystem_read_only);
  CHECK(mounts->at(2).filesystem_read_only);
}

TEST_CASE("escaped characters of a path are decoded") {
  const auto mounts = parse("40 35 43:0 / /a\\040b\\134c rw - ext4 /dev/nbd0 rw\n");
  REQUIRE(mounts);
  REQUIRE(mounts->size() == 1);
  CHECK(mounts->front().target == "/a b\\c");
}

TEST_CASE("the mount that came last at a target comes last in the table") {
  const auto mounts = parse(
      "40 35 43:0 / /a rw - ext4 /dev/nbd0 rw\n"
      "41 40 43:1 / /a rw - ext4 /dev/nbd1 rw\n");
  REQUIRE(mounts);
  REQUIRE(mounts->size() == 2);
  CHECK(mounts->back().source == "/dev/nbd1");
}

TEST_CASE("a mountinfo that cannot be read is an error and not an empty table") {
  CHECK(!host::read_mountinfo("/nonexistent/mountinfo"));
}

TEST_CASE("an ext4 with errors=remount-ro and an error is read-only whatever its flags say") {
  const test::Folder folder;
  for (const auto* device : {"nbd0", "nbd1", "nbd2"}) std::filesystem::create_directory(folder.path() + "/" + device);
  std::ofstream(folder.path() + "/nbd0/errors_count") << "1\n";
  std::ofstream(folder.path() + "/nbd1/errors_count") << "0\n";
  std::ofstream(folder.path() + "/nbd2/errors_count") << "1\n";
  const std::string path = folder.path() + "/mountinfo";
  std::ofstream(path) << "40 35 43:0 / /a rw - ext4 /dev/nbd0 rw,errors=remount-ro\n"
                         "41 35 43:1 / /b rw - ext4 /dev/nbd1 rw,errors=remount-ro\n"
                         "42 35 43:2 / /c rw - ext4 /dev/nbd2 rw\n"
                         "43 35 43:3 / /d rw - ext4 /dev/nbd3 rw,errors=remount-ro\n";
  const auto mounts = host::read_mountinfo(path, folder.path());
  REQUIRE(mounts);
  REQUIRE(mounts->size() == 4);
  CHECK(mounts->at(0).filesystem_read_only);
  for (const std::size_t fine : {1, 2, 3}) CHECK(!mounts->at(fine).filesystem_read_only);
}

TEST_CASE("a mounted btrfs, which has a number of its own, shows its device's number") {
  std::string name;
  struct stat node{};
  for (const auto& entry : std::filesystem::directory_iterator("/dev"))
    if (entry.is_block_file()) name = entry.path();
  if (name.empty() || ::stat(name.c_str(), &node) != 0) {
    WARN("skipped: there is no block device here");
    return;
  }
  const auto read = parse("33 28 0:29 / /a rw - btrfs " + name +
                          " rw,subvol=/\n"
                          "34 28 0:30 / /b rw - btrfs /dev/no-such-device rw,subvol=/\n");
  REQUIRE(read);
  const auto& mounts = *read;
  CHECK(mounts.at(0).dev_major == major(node.st_rdev));
  CHECK(mounts.at(0).dev_minor == minor(node.st_rdev));
  CHECK(mounts.at(1).dev_major == 0);
}

TEST_CASE("a mount's place in the filesystem below is found by any path to it") {
  const auto mounts = parse(
      "20 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
      "21 20 8:2 /kubelet /var/lib/kubelet rw shared:7 - ext4 /dev/sda2 rw\n"
      "22 20 8:2 / /data rw shared:8 master:7 - ext4 /dev/sda2 rw\n"
      "30 21 43:0 / /var/lib/kubelet/staging/v rw shared:9 - ext4 /dev/nbd0 rw\n"
      "31 22 43:0 / /data/kubelet/staging/v rw shared:9 - ext4 /dev/nbd0 rw\n"
      "32 21 43:0 / /var/lib/kubelet/pods/p rw shared:9 - ext4 /dev/nbd0 rw\n");
  REQUIRE(mounts);
  const auto &staged = mounts->at(3), &twin = mounts->at(4), &pod = mounts->at(5);
  CHECK(staged.place.path == "/kubelet/staging/v");
  CHECK(twin.place.path == "/kubelet/staging/v");
  CHECK(staged.place.dev_minor == 2);
  CHECK(staged.place.shared == 7);
  CHECK(twin.place.master == 7);
  CHECK(mounts->at(1).place.path == "/var/lib/kubelet");
  CHECK(host::goes_with(twin, staged));
  CHECK_FALSE(host::goes_with(staged, twin));  // what is unmounted in a slave stays in its master
  CHECK_FALSE(host::goes_with(pod, staged));
  CHECK_FALSE(host::goes_with(staged, staged));
}

TEST_CASE("a table of which only the changed lines are parsed is the same as one that is parsed whole") {
  const std::string root = "20 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n",
                    data = "21 20 8:2 /kubelet /data rw shared:7 - ext4 /dev/sda2 rw\n",
                    moved = "21 20 8:2 /other /data rw shared:8 - ext4 /dev/sda2 rw\n",
                    volume = "30 21 43:0 / /data/v rw shared:9 - ext4 /dev/nbd0 rw\n",
                    read_only = "30 21 43:0 / /data/v ro shared:9 - ext4 /dev/nbd0 rw\n",
                    second = "31 21 43:32 / /data/w rw - ext4 /dev/nbd1 rw\n";
  const std::vector<std::string> texts{
      root + data + volume + second, root + data + second,     root + moved + volume + second,
      root + volume + second,        root + data + read_only,  second + volume + data + root,
      root + data + second + volume, root + volume + data,     "",
      root + data + volume + volume, root + data + "# " + root};
  const auto shown = [](const host::MountLines& all) {
    std::string text;
    for (const auto& [at, row] : all.list.rows()) {
      const auto& mount = row.mount;
      text += std::to_string(mount.id) + " " + mount.target + " " + mount.options + " in " + mount.place.path + " " +
              std::to_string(mount.place.shared) + "\n";
    }
    return text;
  };
  for (const auto& before : texts)
    for (const auto& after : texts) {
      const auto old = host::parse_mounts(before, "mountinfo", {}).value();
      CHECK(shown(host::parse_mounts(after, "mountinfo", old).value()) ==
            shown(host::parse_mounts(after, "mountinfo", {}).value()));
    }
}

TEST_CASE("a line that stays is not parsed again") {
  const std::string line = "40 35 43:0 / /a rw - ext4 /dev/nbd0 rw\n";
  auto before = host::parse_mounts(line, "mountinfo", {}).value();
  host::MountLines other{host::MountList({before.list.rows().begin()->second.mount}), before.lines};
  auto row = before.list.rows().begin()->second;
  row.mount.source = "as it was";
  other.list.remove(0);
  other.list.put(0, row);
  const auto now = host::parse_mounts(line, "mountinfo", std::move(other)).value();
  CHECK(now.list.rows().begin()->second.mount.source == "as it was");
}

TEST_CASE("a source without a name does not hide its mount") {
  const auto mounts = parse("40 35 0:40 / /a rw - tmpfs  rw\n41 35 0:41 / /b rw - tmpfs none rw\n");
  REQUIRE(mounts);
  REQUIRE(mounts->size() == 2);
  CHECK(mounts->front().target == "/a");
}

TEST_CASE("the topmost mount that holds a folder decides whether mounts below it reach other namespaces") {
  const test::Folder folder;
  const std::string path = folder.path() + "/mountinfo";
  std::ofstream(path) << "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
                         "22 21 8:2 / /data rw shared:1 master:1 - ext4 /dev/sdb rw\n"
                         "23 21 8:3 / /a\\040b rw shared:2 - ext4 /dev/sdc rw\n"
                         "24 21 8:4 / /data/top rw shared:3 - ext4 /dev/sdd rw\n"
                         "25 24 8:5 / /data/top rw master:3 - ext4 /dev/sde rw\n";
  CHECK(host::propagates(path, "/data/x") == true);
  CHECK(host::propagates(path, "/database") == false);
  CHECK(host::propagates(path, "/a b/c") == true);
  CHECK(host::propagates(path, "/data/top/x") == false);
  CHECK_FALSE(host::propagates(folder.path() + "/none", "/").has_value());
}
