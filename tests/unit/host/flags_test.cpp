#include "flags.hpp"

#include <sys/mount.h>

#include "corbd/host/values.hpp"
#include "support/catch.hpp"

using namespace corbd;
using host::MountOption;
using host::parse_flags;

TEST_CASE("an empty list of mount flags changes nothing") {
  const auto flags = parse_flags("");
  REQUIRE(flags);
  CHECK(*flags == host::MountFlags());
}

TEST_CASE("mount flags that the kernel keeps per mount become attributes") {
  const auto flags = parse_flags("nodev,nosuid,noexec");
  REQUIRE(flags);
  CHECK(flags->set == (MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  CHECK(flags->filesystem.empty());
}

TEST_CASE("an access time flag replaces whatever was there") {
  const auto flags = parse_flags("noatime");
  REQUIRE(flags);
  CHECK(flags->set == MOUNT_ATTR_NOATIME);
  CHECK(flags->clear == MOUNT_ATTR__ATIME);
}

TEST_CASE("of two opposite mount flags the later wins") {
  const auto flags = parse_flags("noexec,exec");
  REQUIRE(flags);
  CHECK(flags->set == 0);
  CHECK(flags->clear == MOUNT_ATTR_NOEXEC);
}

TEST_CASE("ro is for the mount and for the superblock") {
  const auto flags = parse_flags("ro");
  REQUIRE(flags);
  CHECK(flags->set == MOUNT_ATTR_RDONLY);
  CHECK(flags->filesystem == std::vector{MountOption{"ro", std::nullopt}});
}

TEST_CASE("mount flags are read-only by the last ro or rw among them") {
  for (const auto* flags : {"ro", "noatime,ro", "rw,ro", "ro,noatime"}) CHECK(host::mounts_read_only(flags));
  for (const auto* flags : {"", "rw", "ro,rw", "errors=remount-ro", "context=\"a,ro\"", "norecovery"})
    CHECK_FALSE(host::mounts_read_only(flags));
}

TEST_CASE("flags for mount tools alone do not reach the kernel") {
  const auto flags = parse_flags("_netdev,defaults,nofail,x-systemd.automount,X-mount.mkdir,comment=x,,");
  REQUIRE(flags);
  CHECK(*flags == host::MountFlags());
}

TEST_CASE("options of the filesystem keep their order and values") {
  const auto flags = parse_flags("discard,errors=remount-ro");
  REQUIRE(flags);
  CHECK(flags->filesystem == std::vector{MountOption{"discard", std::nullopt}, MountOption{"errors", "remount-ro"}});
}

TEST_CASE("a comma between quotes belongs to the value") {
  const auto flags = parse_flags("context=\"system_u:object_r:container_file_t:s0:c1,c2\",noatime");
  REQUIRE(flags);
  CHECK(flags->filesystem == std::vector{MountOption{"context", "system_u:object_r:container_file_t:s0:c1,c2"}});
  CHECK(flags->set == MOUNT_ATTR_NOATIME);
}

TEST_CASE("a flag that makes mount another operation is refused") {
  for (const auto* flag : {"bind", "remount", "move", "rshared"})
    CHECK(parse_flags(flag).error().code == errc::invalid_argument);
}
