#include <algorithm>
#include <fstream>

#include "corbd/host/fscrypt.hpp"
#include "corbd/host/helpers.hpp"
#include "corbd/host/luks.hpp"
#include "ground.hpp"
#include "operations.hpp"
#include "ops.hpp"
#include "support/helpers.hpp"
#include "support/places.hpp"

using namespace corbd;
using namespace corbd::test;
using host::Probe;

namespace {

struct Ports {
  template <class T>
  T get(task<T> work) {
    return Started<T>(loop.io, std::move(work)).get();
  }
  Folder folder;
  Loop loop;
  HelperPool pool{loop.control(), loop.clock, helper_child(helper_child_program())};
  std::unique_ptr<host::Mounts> mounts = host::make_mounts(pool);
  std::unique_ptr<host::Filesystems> filesystems = host::make_filesystems(pool);
  std::string busy_file = folder.path() + "/a.busy";
};

template <class T>
T transferred(const T& value) {
  return fields::from_json<T>(fields::to_json(value), "value").value();
}

}  // namespace

TEST_CASE("probe, mkfs and fsck go through a helper") {
  Ports ports;
  const std::string image = make_image(ports.folder.path() + "/image");
  auto found = ports.get(ports.filesystems->probe(image, ports.busy_file, {}));
  REQUIRE(found);
  CHECK(found->kind == Probe::Kind::nothing);
  REQUIRE(ports.get(ports.filesystems->mkfs(image, "ext4", "", {.zeroes = true}, ports.busy_file, {})));
  CHECK(ports.get(ports.filesystems->fsck(image, "ext4", "", ports.busy_file, {})));
  CHECK(ports.get(ports.filesystems->check(image, "ext4", ports.busy_file, {})).value() == "");
  found = ports.get(ports.filesystems->probe(image, ports.busy_file, {}));
  REQUIRE(found);
  CHECK(found->type == "ext4");
  CHECK(ports.get(ports.filesystems->mkfs(image, "ext4", "", {.zeroes = true}, ports.busy_file, {})).error().code ==
        errc::not_empty);
}

TEST_CASE("a helper tells what the filesystem of a device asks of a kernel") {
  Folder folder;
  const std::string image = make_image(folder.path() + "/image");
  const HelperProgram helper{helper_child_program(), {"helper"}};
  CHECK(host::kernel_needs(image, helper)->fstype.empty());
  REQUIRE(host::ops::mkfs(image, "ext4", "-q -O ^metadata_csum"));
  overwrite(image, 1024 + 0x64 + 2, std::string("\x01", 1));
  const auto needs = host::kernel_needs(image, helper);
  REQUIRE(needs);
  CHECK(needs->fstype == "ext4");
  CHECK(needs->beyond_oldest == "orphan_present (Linux 5.15)");
  CHECK(host::kernel_needs_of_new("ext4", "-q -O ^has_journal", helper)->fstype == "ext4");
}

TEST_CASE("a helper's mount and unmount show in the agent's table") {
  if (!may_mount()) return;
  Ports ports;
  const std::string target = ports.folder.path() + "/target", other = ports.folder.path() + "/other";
  const auto count = [&](const std::string& path) { return ports.mounts->table().value()->at(path).size(); };
  REQUIRE(ports.get(ports.mounts->mount("source", "tmpfs", target, "nodev", ports.busy_file, {})));
  REQUIRE(ports.get(ports.mounts->bind(target, other, false, "ro", ports.busy_file, {})));
  CHECK(count(target) == 1);
  CHECK(count(other) == 1);
  const auto trimmed = ports.get(ports.mounts->trim_from(target, 4096, {ports.busy_file, ""}, {}));
  REQUIRE_FALSE(trimmed);
  CHECK(trimmed.error().code == errc::unimplemented);
  CHECK(ports.get(ports.mounts->unmount(other, true, ports.busy_file, {})));
  CHECK(ports.get(ports.mounts->unmount(target, true, ports.busy_file, {})));
  CHECK(count(target) + count(other) == 0);
}

TEST_CASE("a helper's refusal of a device arrives through the port") {
  Ports ports;
  const std::string image = make_image(ports.folder.path() + "/image");
  CHECK(ports.get(ports.filesystems->check_unused(image, "", {})).error().code == errc::invalid_argument);
}

TEST_CASE("a passphrase of any bytes reaches the helper as it is") {
  Ports ports;
  const auto luks = host::make_luks(ports.pool);
  const auto fscrypt = host::make_fscrypt(ports.pool);
  const std::string image = make_image(ports.folder.path() + "/image");
  const Secret bytes(std::string("\xff\x00\xc3\x28\"\\\n", 7));
  REQUIRE(host::ops::luks_format(image, bytes, 4));
  CHECK(*ports.get(luks->opens(image, 0, bytes, {ports.busy_file, ""}, {})));
  CHECK_FALSE(*ports.get(luks->opens(image, 0, Secret("\xff"), {ports.busy_file, ""}, {})));
  // Nothing is encrypted there, which is what its answer must be about.
  const auto unlocked = ports.get(fscrypt->unlock(ports.folder.path(), {bytes, false}, {ports.busy_file, ""}, {}));
  REQUIRE_FALSE(unlocked);
  CHECK(unlocked.error().code != errc::internal);
}

TEST_CASE("where a trim goes on is told by its helper, and to the next one") {
  const auto piece = transferred(host::TrimPiece{1, std::uint64_t{1} << 63});
  CHECK(piece.bytes == 1);
  CHECK(piece.next == std::uint64_t{1} << 63);
  CHECK(transferred(host::operation::TrimFrom{"/a", std::uint64_t{1} << 63}).from == std::uint64_t{1} << 63);
}

TEST_CASE("a device name that could leave sysfs is refused") {
  Ports ports;
  for (const auto* name : {"", "..", "../nbd0", "a/b"})
    CHECK(ports.get(ports.filesystems->tune(name, {}, "", {})).error().code == errc::invalid_argument);
}

TEST_CASE("each kind of value that a helper of this room answers survives the transfer between processes") {
  for (const auto kind : {Probe::Kind::nothing, Probe::Kind::filesystem, Probe::Kind::partitions, Probe::Kind::other,
                          Probe::Kind::ambivalent})
    CHECK(transferred(Probe{kind, "type"}).kind == kind);
  for (const auto folder : {host::EncryptedFolder::none, host::EncryptedFolder::plain, host::EncryptedFolder::locked,
                            host::EncryptedFolder::unlocked})
    CHECK(
        helper::reply_of<host::operation::LookForFolder>(fields::to_json(helper::Answer<host::EncryptedFolder>{folder}))
            .value() == folder);
  CHECK(transferred(host::Extent{1ull << 50, 4096}).bytes == 1ull << 50);
  CHECK(transferred(host::Usage{60, 50, 40, 30, 20, 10}).inodes_available == 10);
  const auto header = transferred(host::LuksHeader{{Probe::Kind::other, "crypto_LUKS"}, {0, 3}, true, 65536});
  CHECK(host::is_luks(header.found));
  CHECK(header.key_slots == std::vector<int>{0, 3});
  CHECK(header.integrity);
  CHECK(header.memory_kib == 65536);
}

TEST_CASE("a helper's reply that lacks a part is an error and not nothing", "[rule:I2]") {
  const auto half = helper::reply_of<host::operation::ProbeDevice>(boost::json::object{{"reply", {{"kind", 0}}}});
  REQUIRE(!half);
  CHECK(half.error().code == errc::internal);
  CHECK(half.error().text == "probe.reply.type: missing");
  CHECK(!helper::reply_of<host::operation::MeasureUsage>(boost::json::object()));
}

TEST_CASE("a helper reads the size and usage of a filesystem") {
  Ports ports;
  const std::string image = make_image(ports.folder.path() + "/image");
  REQUIRE(ports.get(ports.filesystems->mkfs(image, "ext4", "", {.zeroes = true}, ports.busy_file, {})));
  const auto extent = ports.get(ports.filesystems->extent(image, "ext4", "", ports.busy_file, {}));
  REQUIRE(extent);
  CHECK(extent->bytes == 64 << 20);
  CHECK(ports.get(ports.filesystems->grow(image, "nosuchfs", "", ports.busy_file, {})).error().code ==
        errc::unimplemented);
  CHECK(ports.get(ports.mounts->usage(ports.folder.path(), {})).error().code == errc::not_found);
}

TEST_CASE("a filesystem that hangs is not asked again while it hangs") {
  Ports ports;
  const std::string target = ports.folder.path() + "/target", gate = ports.folder.path() + "/gate";
  HelperRequest hanging;
  hanging.what = "look how full " + target + " is";
  hanging.body = {{"op", "test_hold"}, {"started", gate + ".started"}, {"gate", gate}};
  hanging.report_after = std::chrono::seconds(5);
  const Started<result<boost::json::object>> stuck(ports.loop.io, ports.pool.call(hanging, {}));
  ports.loop.advance(std::chrono::seconds(6));
  REQUIRE(ports.pool.stuck().size() == 1);
  CHECK(ports.get(ports.mounts->usage(target, {})).error().code == errc::unavailable);
  CHECK(ports.get(ports.mounts->usage(target + "2", {})).error().code == errc::not_found);
  std::ofstream(gate).close();
  REQUIRE(eventually(ports.loop.io, [&] { return ports.pool.stuck().empty(); }));
  CHECK(ports.get(ports.mounts->usage(target, {})).error().code == errc::not_found);
}
