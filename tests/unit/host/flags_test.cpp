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

TEST_CASE("mount flags are read-only by the last ro or rw among them", "[failure:250]") {
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

TEST_CASE("a default option gives way to one of its name") {
  host::MountFlags flags;
  host::add_default(flags, "errors=remount-ro");
  host::add_default(flags, "nouuid");
  host::add_default(flags, "nouuid");
  CHECK(flags.filesystem == std::vector{MountOption{"errors", "remount-ro"}, MountOption{"nouuid", std::nullopt}});
  auto named = parse_flags("errors=continue").value();
  host::add_default(named, "errors=remount-ro");
  CHECK(named.filesystem == std::vector{MountOption{"errors", "continue"}});
}

TEST_CASE("the protections among mount flags are those that the last of opposite flags leave") {
  CHECK(host::protections("noatime,nosuid,nodev,discard") == "nosuid,nodev");
  CHECK(host::protections("nosuid,noexec,suid") == "noexec");
  CHECK(host::protections("").empty());
}

TEST_CASE("no mount option of a volume names another file or device of the node") {
  for (const auto* flags :
       {"logdev=/dev/nbd7", "noatime,rtdev=/dev/nbd7", "rtdev=nbd7", "journal_dev=0x2b07", "journal_path=/dev/nbd7",
        "device=/dev/nbd7", "lowerdir=/etc", "\"log\"dev=/dev/nbd7", "logdev=\"/dev/nbd7\"", "source=/dev/nbd7"}) {
    CAPTURE(flags);
    const auto checked = host::check_mount_options(flags);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().code == errc::invalid_argument);
    CHECK_THAT(checked.error().text, ContainsSubstring("names another file or device"));
  }
}

TEST_CASE("no mount option of a volume stops the node at an error of its filesystem") {
  for (const auto* flags : {"errors=panic", "noatime,fatal_errors=panic", "errors=\"panic\""})
    CHECK_THAT(host::check_mount_options(flags).error().text, ContainsSubstring("would stop the whole node"));
}

TEST_CASE("mount options that concern the volume alone are allowed") {
  for (const auto* flags :
       {"", "noatime,discard,nouuid", "errors=continue", "errors=remount-ro", "usrjquota=aquota.user,jqfmt=vfsv1",
        "context=\"system_u:object_r:container_file_t:s0:c1,c2\"", "subvol=/db/today", "data=journal,commit=30",
        "x-systemd.requires-mounts-for=/srv", "comment=/dev/sda", "_netdev", "logbsize=256k,sunit=128,swidth=512"}) {
    CAPTURE(flags);
    CHECK(host::check_mount_options(flags));
  }
}

TEST_CASE("a flag that makes mount another operation is refused") {
  for (const auto* flag : {"bind", "remount", "move", "rshared"})
    CHECK(parse_flags(flag).error().code == errc::invalid_argument);
}
