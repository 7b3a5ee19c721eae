// Which filesystems the doctor reads, and that none of them makes it wait for ever.
#include <cstdlib>

#include "inputs.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/places.hpp"
#include "unit/host/ground.hpp"

using namespace corbd;
using namespace corbd::doctor;

namespace {

const HelperProgram kHelper{test::helper_child_program(), {"helper"}};

device::Seen device_of(device::Kind kind, std::uint32_t index, const std::string& backend) {
  device::Seen seen;
  seen.kind = kind;
  seen.index = index;
  seen.backend = backend;
  return seen;
}

}  // namespace

TEST_CASE("the doctor reads the filesystem of each volume where it lies, and looks into no raw block device") {
  Records records;
  records.volumes = {"plain", "block", "luks", "kernel"};
  records.by_kernel = {"kernel"};
  records.blocks = {"block"};
  records.numbers = {{"plain", 0}, {"block", 1}, {"luks", 2}, {"kernel", 0}};
  std::vector<device::Seen> devices{device_of(device::Kind::nbd, 0, "plain"), device_of(device::Kind::nbd, 1, "block"),
                                    device_of(device::Kind::nbd, 2, "luks"),
                                    device_of(device::Kind::nbd, 3, "of another agent"),
                                    device_of(device::Kind::krbd, 0, "")};
  devices[2].holders = {{"dm-0", "luks-rbd-luks_dif", 0}, {"dm-1", "luks-rbd-luks", 0}};
  const auto found = find_filesystems(records, devices, {"sda1", "nbd0", "dm-1"});
  REQUIRE(found.size() == 3);
  CHECK((found[0].volume == "plain" && found[0].device == "/dev/nbd0" && found[0].mounted));
  CHECK((found[1].volume == "luks" && found[1].device == "/dev/mapper/luks-rbd-luks" && found[1].mounted));
  CHECK((found[2].volume == "kernel" && found[2].device == "/dev/rbd0" && !found[2].mounted));
}

TEST_CASE("a superblock is read by a helper, and a device that does not answer is left behind") {
  test::Folder folder;
  const std::string image = test::make_image(folder.path() + "/image"), silent = folder.path() + "/silent";
  REQUIRE(std::system(("mkfs.ext4 -q -O ^metadata_csum " + image).c_str()) == 0);
  test::overwrite(image, 1024 + 0x60 + 3, std::string("\x40", 1));
  // Opening it to read waits for a writer.
  REQUIRE(::mkfifo(silent.c_str(), 0600) == 0);
  const result<host::KernelNeeds> unread = Error{errc::unavailable, "it was not read"};
  std::vector<FilesystemSeen> all{{"silent", silent, true, unread}, {"unserved", image, true, unread}};
  read_filesystems(all, {{"silent", {.state = "staged"}}, {"unserved", {.state = "reconnecting"}}}, kHelper,
                   std::chrono::milliseconds(50));
  CHECK(all[0].needs.error().code == errc::timed_out);
  CHECK(all[1].needs.error().code == errc::unavailable);
  const Fd writer(::open(silent.c_str(), O_WRONLY | O_CLOEXEC));
  all = {{"served", image, false, unread}};
  read_filesystems(all, {{"served", {.state = "staging"}}}, kHelper);
  REQUIRE(all[0].needs);
  CHECK(all[0].needs->fstype == "ext4");
  CHECK(all[0].needs->beyond_running == "features that this agent does not know (0x40000000)");
}

TEST_CASE("each mkfs is tried with the options that its volumes get", "[failure:252]") {
  test::FakeTool tool(
      "mkfs.ext4",
      "for last; do :; done; case \" $* \" in *' -Onewer '*) printf '\\000\\000\\001' | dd of=$last bs=1 "
      "seek=1124 conv=notrunc status=none ;; esac");
  for (const auto& [options, beyond] :
       {std::pair<const char*, const char*>{"-q -Onewer", "orphan_present (Linux 5.15)"}, {"-q", ""}}) {
    const auto made = try_mkfs({{"ext4", options}}, kHelper);
    const auto ext4 = std::ranges::find(made, "ext4", &NewFilesystem::fstype);
    REQUIRE(ext4 != made.end());
    CHECK(ext4->options == options);
    REQUIRE(ext4->needs);
    CHECK(ext4->needs->beyond_oldest == beyond);
  }
}
