#include <filesystem>
#include <fstream>

#include "ground.hpp"
#include "ops.hpp"
#include "run.hpp"

using namespace corbd;
using corbd::host::Probe;
using corbd::test::FakeTool;
using corbd::test::Folder;
using corbd::test::make_image;
using corbd::test::overwrite;
namespace ops = corbd::host::ops;

namespace {

struct Image {
  Folder folder;
  std::string path = make_image(folder.path() + "/image");
  Probe probe() { return ops::probe(path).value(); }
};

}  // namespace

TEST_CASE("a probe of zeros finds nothing") {
  Image image;
  CHECK(image.probe().kind == Probe::Kind::nothing);
}

TEST_CASE("a probe finds an ext4 filesystem") {
  Image image;
  REQUIRE(ops::mkfs(image.path, "ext4", ""));
  CHECK(image.probe().kind == Probe::Kind::filesystem);
  CHECK(image.probe().type == "ext4");
}

TEST_CASE("a probe finds a partition table") {
  Image image;
  // One Linux partition from sector 2048 on; the table's signature.
  overwrite(image.path, 446, std::string("\x00\x00\x00\x00\x83\x00\x00\x00\x00\x08\x00\x00\x00\x40\x00\x00", 16));
  overwrite(image.path, 510, "\x55\xaa");
  CHECK(image.probe().kind == Probe::Kind::partitions);
}

TEST_CASE("a probe reports something that is no filesystem as other") {
  Image image;
  REQUIRE(host::run({"mkswap", image.path}, host::Capture::everything)->code == 0);
  CHECK(image.probe().kind == Probe::Kind::other);
  CHECK(image.probe().type == "swap");
}

TEST_CASE("two filesystems at once are ambivalent") {
  Image image;
  REQUIRE(ops::mkfs(image.path, "ext4", ""));
  // xfs has its superblock in the first sector, ext4 leaves that to others.
  const std::string other = image.folder.path() + "/xfs";
  std::ofstream(other).close();
  std::filesystem::resize_file(other, 512u << 20);
  REQUIRE(host::run({"mkfs.xfs", "-q", other}, host::Capture::everything)->code == 0);
  std::string sector(512, '\0');
  std::ifstream(other, std::ios::binary).read(sector.data(), 512);
  overwrite(image.path, 0, sector);
  CHECK(image.probe().kind == Probe::Kind::ambivalent);
}

TEST_CASE("a device with a superblock of a wrong checksum does not count as empty") {
  // Which checksums blkid looks at differs between its versions.
  struct Damage {
    const char* fstype;
    off_t volume_name;
  };
  for (const auto& [fstype, volume_name] : {Damage{"ext4", 1024 + 0x78}, Damage{"xfs", 108}}) {
    Folder folder;
    const std::string path = make_image(folder.path() + "/image", 400L * 1024 * 1024);
    REQUIRE(ops::mkfs(path, fstype, ""));
    overwrite(path, volume_name, "x");
    CHECK(ops::probe(path)->kind != Probe::Kind::nothing);
    CHECK(ops::mkfs(path, fstype, "").error().code == errc::not_empty);
  }
}

TEST_CASE("a device without a size is an error and not empty") {
  Folder folder;
  CHECK(!ops::probe(make_image(folder.path() + "/image", 0)));
}

TEST_CASE("a device that does not exist is an error and not empty") {
  CHECK(ops::probe("/nonexistent/device").error().code == errc::unavailable);
}

TEST_CASE("mkfs refuses a device that is not empty, and leaves it as it is") {
  Image image;
  REQUIRE(ops::mkfs(image.path, "ext4", ""));
  const auto again = ops::mkfs(image.path, "xfs", "");
  REQUIRE(!again);
  CHECK(again.error().code == errc::not_empty);
  CHECK_THAT(again.error().text, ContainsSubstring("ext4"));
  CHECK(image.probe().type == "ext4");
}

TEST_CASE("mkfs makes an xfs filesystem") {
  Folder folder;
  const std::string path = make_image(folder.path() + "/image", 400L * 1024 * 1024);
  const auto made = ops::mkfs(path, "xfs", "");
  REQUIRE(made);
  CHECK(ops::probe(path)->type == "xfs");
}

TEST_CASE("mkfs.ext4 gets ceph-csi's options by default") {
  Image image;
  const std::string seen = image.folder.path() + "/seen";
  FakeTool tool("mkfs.ext4", "[ \"$1\" = -n ] || echo \"$@\" > " + seen);
  REQUIRE(ops::mkfs(image.path, "ext4", ""));
  std::string arguments;
  std::getline(std::ifstream(seen), arguments);
  CHECK_THAT(arguments, ContainsSubstring("-m0 -Enodiscard,"));
  CHECK(arguments.ends_with(image.path));
}

TEST_CASE("mkfs.ext4 leaves inode tables unwritten only if unwritten blocks read as zeros") {
  Image image;
  const std::string seen = image.folder.path() + "/seen";
  FakeTool tool("mkfs.ext4", "[ \"$1\" = -n ] || echo \"$@\" > " + seen);
  const bool zeroes = GENERATE(false, true);
  REQUIRE(ops::mkfs(image.path, "ext4", "", {.zeroes = zeroes}));
  std::string arguments;
  std::getline(std::ifstream(seen), arguments);
  CHECK((arguments.find("assume_storage_prezeroed") != std::string::npos) == zeroes);
  CHECK((arguments.find("lazy_itable_init=1") != std::string::npos) == !zeroes);
}

TEST_CASE("a filesystem for encrypted files is made with that feature, and only where its type has it") {
  Image image;
  const std::string seen = image.folder.path() + "/seen";
  FakeTool tool("mkfs.ext4", "[ \"$1\" = -n ] || echo \"$@\" > " + seen);
  const std::string options = GENERATE("", "-m1");
  REQUIRE(ops::mkfs(image.path, "ext4", options, {.files_encrypted = true}));
  std::string arguments;
  std::getline(std::ifstream(seen), arguments);
  CHECK(arguments.ends_with(" -Oencrypt " + image.path));
  CHECK(corbd::host::encrypts_files("ext4"));
  CHECK_FALSE(corbd::host::encrypts_files("xfs"));
  const auto xfs = ops::mkfs(image.path, "xfs", "", {.files_encrypted = true});
  REQUIRE_FALSE(xfs);
  CHECK(xfs.error().code == errc::invalid_argument);
  CHECK(xfs.error().text.find("use ext4") != std::string::npos);
}

TEST_CASE("a user's mkfs options replace the defaults and are split at single spaces") {
  Image image;
  const std::string seen = image.folder.path() + "/seen";
  FakeTool tool("mkfs.ext4", "for a in \"$@\"; do printf '[%s]' \"$a\"; done > " + seen);
  REQUIRE(ops::mkfs(image.path, "ext4", "-b 1024  -Lx"));
  std::string arguments;
  std::getline(std::ifstream(seen), arguments);
  CHECK(arguments == "[-b][1024][][-Lx][" + image.path + "]");
}

TEST_CASE("a failed mkfs quotes a bounded part of the tool's output") {
  Image image;
  FakeTool tool("mkfs.ext4", "head -c 100000 /dev/zero | tr '\\0' x >&2; echo ' no such option' >&2; exit 1");
  const auto made = ops::mkfs(image.path, "ext4", "-Z");
  REQUIRE(!made);
  CHECK(made.error().code == errc::failed_precondition);
  CHECK_THAT(made.error().text, ContainsSubstring("no such option"));
  CHECK(made.error().text.size() < 4096);
}

TEST_CASE("a filesystem without a tool is named") {
  Image image;
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  const auto made = ops::mkfs(image.path, "xfs", "");
  ::setenv("PATH", path.c_str(), 1);
  REQUIRE(!made);
  CHECK(made.error().code == errc::failed_precondition);
  CHECK_THAT(made.error().text, ContainsSubstring("mkfs.xfs"));
}

TEST_CASE("a filesystem type that is not in the table is refused") {
  Image image;
  for (const auto* type : {"", "../ext4", "ext4 -F", "ext4;x", "vfat"})
    CHECK(ops::mkfs(image.path, type, "").error().code == errc::invalid_argument);
}

TEST_CASE("fsck of a good filesystem succeeds") {
  Image image;
  REQUIRE(ops::mkfs(image.path, "ext4", ""));
  CHECK(ops::fsck(image.path, "ext4", ""));
}

TEST_CASE("fsck succeeds when it corrected everything, and when it could not work at all") {
  for (const auto* code : {"1", "8", "16"}) {
    FakeTool tool("fsck.ext4", "exit " + std::string(code));
    CHECK(ops::fsck("/dev/x", "ext4", ""));
  }
}

TEST_CASE("fsck fails with the tool's words when errors are left") {
  for (const auto* code : {"4", "12"}) {
    FakeTool tool("fsck.ext4", "echo UNEXPECTED INCONSISTENCY; exit " + std::string(code));
    const auto checked = ops::fsck("/dev/x", "ext4", "");
    REQUIRE(!checked);
    CHECK(checked.error().code == errc::failed_precondition);
    CHECK_THAT(checked.error().text, ContainsSubstring("UNEXPECTED INCONSISTENCY"));
  }
}

TEST_CASE("a killed fsck can be tried again") {
  FakeTool tool("fsck.ext4", "kill -9 $$");
  CHECK(ops::fsck("/dev/x", "ext4", "").error().code == errc::unavailable);
}

TEST_CASE("fsck has the options that are given, as an argument each") {
  FakeTool tool("fsck.ext4", "[ \"$1$2$3\" = -p-f/dev/x ] || exit 4");
  CHECK(ops::fsck("/dev/x", "ext4", "-p -f"));
  CHECK_FALSE(ops::fsck("/dev/x", "ext4", ""));
}

TEST_CASE("options are given for each type that is offered, and refused for any other") {
  const auto options = corbd::host::options_by_type("ext4:-m1 -b4096;;xfs:-K");
  REQUIRE(options);
  CHECK(*options == std::map<std::string, std::string>{{"ext4", "-m1 -b4096"}, {"xfs", "-K"}});
  CHECK(corbd::host::options_by_type("")->empty());
  CHECK(corbd::host::options_by_type("ext4:errors=remount-ro")->at("ext4") == "errors=remount-ro");
  for (const auto* wrong : {"vfat:-x", "ext4", "ext4:", "-m1"}) CHECK_FALSE(corbd::host::options_by_type(wrong));
}

TEST_CASE("options with which fsck cannot work let no filesystem be mounted unchecked") {
  FakeTool tool("fsck.ext4", "echo need terminal; exit 8");
  CHECK(ops::fsck("/dev/x", "ext4", ""));
  const auto checked = ops::fsck("/dev/x", "ext4", "-f");
  REQUIRE_FALSE(checked);
  CHECK(checked.error().code == errc::failed_precondition);
  CHECK_THAT(checked.error().text, ContainsSubstring("--fsck-options"));
}
