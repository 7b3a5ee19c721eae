#include <cstring>
#include <filesystem>
#include <fstream>

#include "corbd/host/tools.hpp"
#include "filesystem_types.hpp"
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
  std::string bytes() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

/// Clears the root folder: the second inode of the table that the first group's descriptor names.
void clear_root(const Image& image) {
  const std::string before = image.bytes();
  const auto number = [&](std::size_t at) {
    std::uint32_t read = 0;
    std::memcpy(&read, before.data() + at, sizeof read);
    return read;
  };
  const std::uint32_t block = 1024U << number(1024 + 0x18);
  const std::uint32_t table = number((block == 1024 ? 2 : 1) * block + 8) * block;
  overwrite(image.path, table + (number(1024 + 0x58) & 0xffff), std::string(128, '\0'));
}

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

TEST_CASE("mkfs refuses a device that is not empty, and leaves it as it is", "[rule:10]") {
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

TEST_CASE("an ext4 has no feature that its mke2fs adds by default", "[failure:252]") {
  Image image;
  ::setenv("MKE2FS_CONFIG", (image.folder.path() + "/conf").c_str(), 1);
  std::ofstream(image.folder.path() + "/conf") << "[defaults]\nbase_features = sparse_super,large_file,filetype\n"
                                                  "[fs_types]\next4 = {\nfeatures = extent,quota,casefold\n}\n";
  const auto made = ops::mkfs(image.path, "ext4", "");
  ::unsetenv("MKE2FS_CONFIG");
  REQUIRE(made);
  const auto words = host::filesystem_type("ext4")->features;
  CHECK(host::features_beyond(image.path, words, host::kOldestKernel)->empty());
  const auto shown = host::run({"dumpe2fs", "-h", image.path}, host::Capture::everything);
  CHECK_THAT(shown->output, ContainsSubstring(" metadata_csum "));
  CHECK_THAT(shown->output, !ContainsSubstring(" quota ") && !ContainsSubstring(" casefold "));
}

TEST_CASE("mkfs.xfs makes no feature of a kernel newer than 5.14, and an old one gets no option that it does not know",
          "[failure:252]") {
  struct Row {
    const char *usage, *options;
  };
  const auto [usage, options] = GENERATE(
      Row{"[-m crc=0|1,reflink=0|1,bigtime=0|1] [-i sparse=0|1] [-n ftype=0|1]", "-K -m reflink=0"},
      Row{"[-m reflink=0|1,autofsck=xxx, metadir=0|1] [-i nrext64=0|1, exchange=0|1] [-n ftype=0|1,parent=0|1]]",
          "-K -m reflink=0 -m metadir=0 -i nrext64=0 -i exchange=0 -n parent=0"});
  Folder folder;
  const std::string image = make_image(folder.path() + "/image"), seen = folder.path() + "/seen";
  FakeTool tool("mkfs.xfs", "[ $# = 0 ] && { echo '" + std::string(usage) + "' >&2; exit 1; }; echo \"$@\" > " + seen);
  REQUIRE(ops::mkfs(image, "xfs", ""));
  std::string arguments;
  std::getline(std::ifstream(seen), arguments);
  CHECK(arguments == std::string(options) + " " + image);
}

TEST_CASE("mkfs.btrfs makes no feature of a kernel newer than 5.14 that it makes by default", "[failure:252]") {
  constexpr const char* features =
      "Filesystem features available:\n"
      "no-holes            - no explicit hole extents for files (compat=3.14, safe=4.0, default=5.15)\n"
      "zoned               - support zoned devices (compat=5.12)\n"
      "bgt                 - block-group-tree alias\n"
      "block-group-tree    - block group tree, to reduce mount time (compat=6.1, safe=6.6, default=6.19)\n"
      "squota              - squota support (compat=6.7)\n"
      "later-one           - another (compat=6.20, default=8.1)";
  Folder folder;
  const std::string image = make_image(folder.path() + "/image"), seen = folder.path() + "/seen";
  FakeTool tool("mkfs.btrfs", "[ \"$2\" = list-all ] && { echo '" + std::string(features) +
                                  "' >&2; exit 0; }; echo \"$@\" > " + seen);
  REQUIRE(ops::mkfs(image, "btrfs", ""));
  std::string arguments;
  std::getline(std::ifstream(seen), arguments);
  CHECK(arguments == "-K -O^block-group-tree,^later-one " + image);
}

TEST_CASE("no mkfs discards the image, which is empty") {
  struct Row {
    const char *fstype, *option;
  };
  for (const auto& [fstype, option] : {Row{"ext4", "-Enodiscard"}, Row{"ext3", "-Enodiscard"},
                                       Row{"ext2", "-Enodiscard"}, Row{"xfs", "-K"}, Row{"btrfs", "-K"}}) {
    CAPTURE(fstype);
    Folder folder;
    const std::string image = make_image(folder.path() + "/image"), seen = folder.path() + "/seen";
    FakeTool tool("mkfs." + std::string(fstype), "echo \"$@\" > " + seen);
    REQUIRE(ops::mkfs(image, fstype, ""));
    std::string arguments;
    std::getline(std::ifstream(seen), arguments);
    CHECK_THAT(arguments, ContainsSubstring(option));
  }
}

TEST_CASE("an xfs of the old format is told from one that every kernel mounts") {
  struct Row {
    const char* options;
    bool is_old;
  };
  for (const auto& [options, is_old] : {Row{"-q -m crc=0", true}, Row{"-q", false}}) {
    Folder folder;
    const std::string image = make_image(folder.path() + "/image", 400L * 1024 * 1024);
    if (!ops::mkfs(image, "xfs", options)) {
      WARN("skipped: this mkfs.xfs does not make the old format");
      continue;
    }
    CHECK((host::filesystem_type("xfs")->outdated(image).find("CONFIG_XFS_SUPPORT_V4") != std::string::npos) == is_old);
  }
}

TEST_CASE("a filesystem that is too small for its tool is an error with the tool's words, and the device stays empty") {
  Image image;
  const auto made = ops::mkfs(image.path, "xfs", "");
  REQUIRE_FALSE(made);
  CHECK(made.error().code == errc::failed_precondition);
  // "300MB", or "300MiB" since xfsprogs 7.
  CHECK_THAT(made.error().text, ContainsSubstring("larger than 300M"));
  CHECK(image.probe().kind == Probe::Kind::nothing);
}

TEST_CASE("the features of a filesystem that an older kernel does not know are named, with the kernel that does",
          "[failure:252]") {
  struct Row {
    const char* fstype;
    off_t at;
    std::string bytes;
    host::KernelVersion kernel;
    const char* named;
  };
  const auto row = GENERATE(
      Row{"xfs",
          216,
          std::string("\0\0\0\xeb", 4),
          {5, 14},
          "nrext64 (Linux 5.19), exchange (Linux 6.10), parent (Linux 6.10)"},
      Row{"xfs", 216, std::string("\0\0\0\xeb", 4), {6, 1}, "exchange (Linux 6.10), parent (Linux 6.10)"},
      Row{"xfs", 216, std::string("\0\0\0\xeb", 4), {6, 12}, ""},
      Row{"xfs", 212, std::string("\0\0\1\x0f", 4), {6, 12}, "features that this agent does not know (0x100)"},
      Row{"ext4", 1024 + 0x64, std::string("\0\0\1\0", 4), {5, 10}, "orphan_present (Linux 5.15)"},
      Row{"btrfs", 65536 + 0xb4, std::string("\x0b\0\0\0\0\0\0\0", 8), {5, 15}, "block-group-tree (Linux 6.1)"});
  Image image;
  overwrite(image.path, row.at, row.bytes);
  const auto found = host::features_beyond(image.path, host::filesystem_type(row.fstype)->features, row.kernel);
  REQUIRE(found);
  CHECK(*found == row.named);
}

TEST_CASE("features that a newer mkfs makes without being asked are told when it has made the filesystem",
          "[failure:252]") {
  struct Row {
    const char *fstype, *options;
    long at;
    const char *bit, *named;
  };
  const auto row = GENERATE(
      Row{"ext4", "", 1024 + 0x64, "\\000\\000\\000\\001", "features that this agent does not know (0x1000000)"},
      Row{"xfs", "", 216, "\\000\\000\\010\\000", "features that this agent does not know (0x800)"},
      Row{"xfs", "-K", 216, "\\000\\000\\000\\200", "parent (Linux 6.10)"},
      Row{"btrfs", "", 65536 + 0xbc, "\\000\\000\\000\\000\\001\\000\\000\\000",
          "features that this agent does not know (0x100000000)"},
      Row{"xfs", "", 216, "\\000\\000\\000\\001", ""});
  Image image;
  FakeTool tool("mkfs." + std::string(row.fstype),
                "for last; do :; done; case $last in /*) printf '" + std::string(row.bit) +
                    "' | dd of=$last bs=1 seek=" + std::to_string(row.at) + " conv=notrunc status=none ;; esac");
  const auto made = ops::mkfs(image.path, row.fstype, row.options);
  REQUIRE(made);
  CHECK(*made == row.named);
}

TEST_CASE("an ext4 whose superblock wants a panic at an error is mounted with another wish, and no other is") {
  Image image;
  const auto option = [&] { return host::filesystem_type("ext4")->mount_option(image.path); };
  overwrite(image.path, 1024 + 0x3c, std::string("\1\0", 2));
  CHECK(option().empty());
  overwrite(image.path, 1024 + 0x3c, std::string("\3\0", 2));
  CHECK(option() == "errors=remount-ro");
}

TEST_CASE("what a mkfs makes is tried in memory, and never with options that name a device") {
  for (const char* fstype : {"ext4", "xfs", "btrfs"}) {
    if (host::find_program("mkfs." + std::string(fstype)).empty()) {
      WARN("skipped: there is no mkfs." << fstype);
      continue;
    }
    const auto made = ops::kernel_needs_of_new(fstype, "");
    REQUIRE(made);
    CHECK(made->fstype == fstype);
    CHECK((made->beyond_running.empty() && made->beyond_oldest.empty()));
  }
  Folder folder;
  const std::string seen = folder.path() + "/seen";
  FakeTool tool("mkfs.xfs", "touch " + seen);
  for (const char* options : {"-l logdev=/dev/sda", "-d name=/srv/image", "-p /srv/protofile"})
    CHECK(ops::kernel_needs_of_new("xfs", options).error().code == errc::failed_precondition);
  CHECK_FALSE(std::filesystem::exists(seen));
}

TEST_CASE("a kernel's version is the first two numbers of its release") {
  CHECK(host::kernel_version("6.12.35-generic") == host::KernelVersion{6, 12});
  CHECK(host::kernel_version("5.14") == host::KernelVersion{5, 14});
  CHECK(host::kernel_version("") == host::KernelVersion{0, 0});
  CHECK(host::KernelVersion{5, 19} < host::KernelVersion{6, 1});
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

TEST_CASE("fsck fails with the tool's words when errors are left", "[failure:47]") {
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

TEST_CASE("a check that repairs nothing finds no damage in a good filesystem, and replays its journal",
          "[failure:47]") {
  constexpr off_t incompatible = 1024 + 0x60;
  Image image;
  REQUIRE(ops::mkfs(image.path, "ext4", "-q -O ^metadata_csum"));
  const std::string before = image.bytes();
  CHECK(ops::check(image.path, "ext4").value() == "");
  CHECK((image.bytes() == before));
  const char flags = before.at(incompatible);
  overwrite(image.path, incompatible, std::string(1, static_cast<char>(flags | 4)));  // needs_recovery
  CHECK(ops::check(image.path, "ext4").value() == "");
  CHECK(image.bytes().at(incompatible) == flags);
}

TEST_CASE("a check tells the damage that it finds, and changes nothing of a filesystem that is marked as damaged",
          "[failure:47]") {
  Image image;
  REQUIRE(ops::mkfs(image.path, "ext4", "-q -O ^metadata_csum"));
  overwrite(image.path, 1024 + 0x3a, "\x03");  // valid, with errors
  overwrite(image.path, 1024 + 0x60, std::string(1, static_cast<char>(image.bytes().at(1024 + 0x60) | 4)));
  clear_root(image);
  const std::string before = image.bytes();
  CHECK_THAT(ops::check(image.path, "ext4").value(), ContainsSubstring("fsck.ext4 -n"));
  CHECK((image.bytes() == before));
}

TEST_CASE("an inspection tells errors and changes nothing, and a repair leaves none", "[failure:47]") {
  Image image;
  REQUIRE(ops::mkfs(image.path, "ext4", "-q -O ^metadata_csum"));
  CHECK(ops::inspect(image.path, "ext4", false)->clean);
  clear_root(image);
  const std::string before = image.bytes();
  const auto found = ops::inspect(image.path, "ext4", false);
  REQUIRE(found);
  CHECK_FALSE(found->clean);
  CHECK(found->command == "e2fsck -f -n " + image.path);
  CHECK_THAT(found->report, ContainsSubstring("oot inode"));
  CHECK((image.bytes() == before));
  CHECK(ops::inspect(image.path, "ext4", true)->clean);
  CHECK(ops::inspect(image.path, "ext4", false)->clean);
}

TEST_CASE("a repair that leaves errors, or could not work, is not clean", "[failure:47]") {
  const int code = GENERATE(4, 5, 8, 16);
  const FakeTool tool("e2fsck", "echo 'words'; exit " + std::to_string(code));
  const auto found = ops::inspect("/dev/x", "ext4", true);
  REQUIRE(found);
  CHECK_FALSE(found->clean);
  CHECK(found->report == "words");
}

TEST_CASE("an inspection that was killed may be repeated, and btrfs is not repaired without a person's look",
          "[failure:47]") {
  const FakeTool tool("xfs_repair", "kill -9 $$");
  CHECK(ops::inspect("/dev/x", "xfs", false).error().code == errc::unavailable);
  CHECK(ops::inspect("/dev/x", "btrfs", true).error().code == errc::unimplemented);
}

TEST_CASE("a filesystem that is marked as damaged is damaged, even if its checker finds nothing") {
  Image image;
  REQUIRE(ops::mkfs(image.path, "ext4", "-q -O ^metadata_csum"));
  overwrite(image.path, 1024 + 0x3a, "\x03");
  const FakeTool tool("fsck.ext4", "exit 0");
  CHECK_THAT(ops::check(image.path, "ext4").value(), ContainsSubstring("marked"));
}

TEST_CASE("a filesystem that the replay of its journal marks as damaged is damaged") {
  Image image;
  REQUIRE(ops::mkfs(image.path, "ext4", "-q -O ^metadata_csum"));
  const FakeTool tool("fsck.ext4",
                      "[ \"$1\" = -n ] || printf '\\003' | dd of=\"$3\" bs=1 seek=1082 conv=notrunc 2>/dev/null");
  CHECK_THAT(ops::check(image.path, "ext4").value(), ContainsSubstring("marked"));
}

TEST_CASE(
    "a check that was killed can be tried again, one that could not work finds no damage and fails, and xfs has none") {
  {
    const FakeTool tool("fsck.ext4", "kill -9 $$");
    CHECK(ops::check("/dev/x", "ext4").error().code == errc::unavailable);
  }
  {
    const FakeTool tool("fsck.ext4", "exit 8");
    const auto checked = ops::check("/dev/x", "ext4");
    REQUIRE(!checked);
    CHECK(checked.error().code == errc::failed_precondition);
    CHECK_THAT(checked.error().text, ContainsSubstring("exit code 8"));
  }
  const FakeTool tool("fsck.xfs", "exit 4");
  CHECK(ops::check("/dev/x", "xfs").value() == "");
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
