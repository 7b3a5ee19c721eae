#include <algorithm>

#include "corbd/host/helpers.hpp"
#include "ground.hpp"
#include "requests.hpp"
#include "support/helpers.hpp"

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
  HelperPool pool{loop.control(), loop.clock, helper_child(HELPER_CHILD)};
  std::unique_ptr<host::Mounts> mounts = host::make_mounts(pool);
  std::unique_ptr<host::Filesystems> filesystems = host::make_filesystems(pool);
  std::string busy_file = folder.path() + "/a.busy";
};

}  // namespace

TEST_CASE("probe, mkfs and fsck go through a helper") {
  Ports ports;
  const std::string image = make_image(ports.folder.path() + "/image");
  auto found = ports.get(ports.filesystems->probe(image, ports.busy_file, {}));
  REQUIRE(found);
  CHECK(found->kind == Probe::Kind::nothing);
  REQUIRE(ports.get(ports.filesystems->mkfs(image, "ext4", "", ports.busy_file, {})));
  CHECK(ports.get(ports.filesystems->fsck(image, ports.busy_file, {})));
  found = ports.get(ports.filesystems->probe(image, ports.busy_file, {}));
  REQUIRE(found);
  CHECK(found->type == "ext4");
  CHECK(ports.get(ports.filesystems->mkfs(image, "ext4", "", ports.busy_file, {})).error().code == errc::not_empty);
}

TEST_CASE("a mount by a helper shows in the agent's table and goes again") {
  if (!may_mount()) return;
  Ports ports;
  const std::string target = ports.folder.path() + "/target", other = ports.folder.path() + "/other";
  const auto count = [&](const std::string& path) {
    const auto table = ports.mounts->table().value();
    return std::count_if(table.begin(), table.end(), [&](const host::Mount& mount) { return mount.target == path; });
  };
  REQUIRE(ports.get(ports.mounts->mount("source", "tmpfs", target, "nodev", ports.busy_file, {})));
  REQUIRE(ports.get(ports.mounts->bind(target, other, false, "ro", ports.busy_file, {})));
  CHECK(count(target) == 1);
  CHECK(count(other) == 1);
  CHECK(ports.get(ports.mounts->unmount(other, ports.busy_file, {})));
  CHECK(ports.get(ports.mounts->unmount(target, ports.busy_file, {})));
  CHECK(count(target) + count(other) == 0);
}

TEST_CASE("a helper's refusal of a device arrives through the port") {
  Ports ports;
  const std::string image = make_image(ports.folder.path() + "/image");
  CHECK(ports.get(ports.filesystems->check_unused(image, "", {})).error().code == errc::invalid_argument);
}

TEST_CASE("a device name that could leave sysfs is refused") {
  Ports ports;
  for (const auto* name : {"", "..", "../nbd0", "a/b"})
    CHECK(ports.get(ports.filesystems->tune(name, "", {})).error().code == errc::invalid_argument);
}

TEST_CASE("an operation that the helper does not know is refused by name") {
  const auto reply = host::work({{"op", "nosuch"}});
  REQUIRE(!reply);
  CHECK(reply.error().code == errc::unimplemented);
}

TEST_CASE("every kind of probe result survives the way between the processes") {
  for (const auto kind : {Probe::Kind::nothing, Probe::Kind::filesystem, Probe::Kind::partitions, Probe::Kind::other,
                          Probe::Kind::ambivalent}) {
    const auto back = host::probe_from_json(host::probe_to_json({kind, "type"}));
    REQUIRE(back);
    CHECK(back->kind == kind);
    CHECK(back->type == "type");
  }
}

TEST_CASE("a probe reply that is not understood is an error and not nothing") {
  CHECK(!host::probe_from_json({}));
  CHECK(!host::probe_from_json({{"kind", "empty"}, {"type", ""}}));
}
