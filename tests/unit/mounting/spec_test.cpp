// What a person writes of a mount, on the command line or in a file, and what becomes of it.
#include "corbd/mounting/spec.hpp"

#include <filesystem>
#include <fstream>

#include "support/catch.hpp"
#include "support/folder.hpp"
#include "unit.hpp"
#include "view.hpp"

using namespace corbd;
using manager::AccessType;
using manager::Claim;
using manager::PathState;
using mounting::Keeps;
using mounting::MountSpec;

namespace {

struct Etc {
  test::Folder folder;
  Etc() {
    std::ofstream(folder.path() + "/ceph.conf") << "[global]\nfsid = f-1\nmon_host = a\n";
    std::ofstream(folder.path() + "/keyring") << "[client.admin]\nkey = AQadmin==\n[client.db]\nkey = AQdb==\n";
    std::ofstream(folder.path() + "/passphrase") << "open sesame\n";
  }
  MountSpec spec(const std::string& image = "rbd/db") const {
    MountSpec made;
    made.image = image;
    made.dir = "/srv/db";
    made.conf = folder.path() + "/ceph.conf";
    made.keyring = folder.path() + "/keyring";
    return made;
  }
};

errc code_of(const MountSpec& spec) {
  const auto made = mounting::mount_of(spec);
  return made ? errc::ok : made.error().code;
}

}  // namespace

TEST_CASE("an image becomes a static volume of the host's cluster, with its user's key") {
  const Etc etc;
  MountSpec spec = etc.spec();
  spec.user = "db";
  spec.options = "noatime,nodev";
  const auto mount = mounting::mount_of(spec);
  REQUIRE(mount);
  CHECK(mount->volume.external_id == "db");
  CHECK(mount->volume.name == "rbd/db");
  CHECK(mount->volume_context.at("staticVolume") == "true");
  CHECK(mount->volume_context.at("pool") == "rbd");
  CHECK(mount->volume_context.at("clusterID") == "f-1");
  CHECK(mount->secrets.at("userID").reveal() == "db");
  CHECK(mount->secrets.at("userKey").reveal() == "AQdb==");
  CHECK(mount->target == "/srv/db");
  CHECK(mount->usage.mount_options == std::vector<std::string>{"noatime", "nodev"});
  CHECK(mount->usage.access_mode == "SINGLE_NODE_MULTI_WRITER");
  CHECK(mounting::mount_of(etc.spec("db"))->volume.name == "rbd/db");
}

TEST_CASE("a mount that names no filesystem asks for none, so that what is there counts") {
  const Etc etc;
  MountSpec spec = etc.spec();
  CHECK(mounting::mount_of(spec)->usage.fstype.empty());
  spec.fstype = "xfs";
  CHECK(mounting::mount_of(spec)->usage.fstype == "xfs");
}

TEST_CASE("a mount without a filesystem type accepts the same volume that an older version mounted as ext4",
          "[failure:254]") {
  const Etc etc;
  auto mount = mounting::mount_of(etc.spec()).value();
  Claim claim;
  claim.volume = mount.volume;
  claim.volume.plugin = "rbd.csi.ceph.com";
  claim.target = mount.target;
  claim.volume_context = mount.volume_context;
  claim.usage = mount.usage;
  claim.usage.fstype = "ext4";
  auto named = mount, other = mount, elsewhere = mount;
  CHECK(mounting::keep_mounted(mount, claim, Keeps::type));
  CHECK(mount.usage == claim.usage);
  named.usage.fstype = "xfs";
  CHECK_FALSE(mounting::keep_mounted(named, claim, Keeps::type));
  other.volume.name = "rbd/other";
  CHECK_FALSE(mounting::keep_mounted(other, claim, Keeps::type));
  elsewhere.volume_context["pool"] = "other";
  CHECK_FALSE(mounting::keep_mounted(elsewhere, claim, Keeps::type_and_options));
}

TEST_CASE("a mount with other options is kept only for a caller that accepts the old ones") {
  const Etc etc;
  auto mount = mounting::mount_of(etc.spec()).value();
  Claim claim;
  claim.volume = mount.volume;
  claim.target = mount.target;
  claim.volume_context = mount.volume_context;
  claim.usage = mount.usage;
  mount.usage.mount_options = {"nosuid", "nodev"};
  CHECK_FALSE(mounting::keep_mounted(mount, claim, Keeps::type));
  CHECK(mount.usage.mount_options.size() == 2);
  CHECK(mounting::keep_mounted(mount, claim, Keeps::type_and_options));
  CHECK(mount.usage == claim.usage);
  mount.usage.read_only = true;
  CHECK_FALSE(mounting::keep_mounted(mount, claim, Keeps::type_and_options));
}

TEST_CASE("a provisioned volume is known by its ID, and needs no pool") {
  const Etc etc;
  const std::string id = "0001-0009-rook-ceph-0000000000000002-50d53503-9da1-11ed-847e-bacf8f2f1297";
  const auto mount = mounting::mount_of(etc.spec(id));
  REQUIRE(mount);
  CHECK(mount->volume.external_id == id);
  CHECK_FALSE(mount->volume_context.contains("staticVolume"));
}

TEST_CASE("read-only, raw block, encryption and attributes reach the plugin") {
  const Etc etc;
  MountSpec spec = etc.spec();
  spec.read_only = true;
  CHECK(mounting::mount_of(spec)->usage.access_mode == "MULTI_NODE_READER_ONLY");
  CHECK(mounting::mount_of(spec)->usage.read_only);
  spec = etc.spec();
  spec.block = true;
  CHECK(mounting::mount_of(spec)->usage.attachment == AccessType::block);
  CHECK(mounting::mount_of(spec)->usage.fstype.empty());
  spec = etc.spec();
  spec.kms = "default";
  spec.passphrase_file = etc.folder.path() + "/passphrase";
  spec.attributes = {"mapOptions=nbd:notrim", "pool=other"};
  const auto mount = mounting::mount_of(spec);
  REQUIRE(mount);
  CHECK(mount->volume_context.at("encrypted") == "true");
  CHECK(mount->volume_context.at("encryptionKMSID") == "default");
  CHECK(mount->secrets.at("encryptionPassphrase").reveal() == "open sesame\n");
  CHECK(mount->volume_context.at("mapOptions") == "nbd:notrim");
  CHECK(mount->volume_context.at("pool") == "other");
}

TEST_CASE("an invalid mount is refused before any call") {
  const Etc etc;
  for (const char* bad : {"pool/space/image", "/image", "pool/", "pool/image@snap", ""})
    CHECK(code_of(etc.spec(bad)) == errc::invalid_argument);
  MountSpec spec = etc.spec();
  spec.dir = "srv";
  CHECK(code_of(spec) == errc::invalid_argument);
  spec = etc.spec();
  spec.block = true;
  spec.fstype = "xfs";
  CHECK(code_of(spec) == errc::invalid_argument);
  spec = etc.spec();
  spec.user = "nobody";
  CHECK(code_of(spec) == errc::not_found);
  spec = etc.spec();
  spec.conf = "/none";
  CHECK_THAT(mounting::mount_of(spec).error().text, ContainsSubstring("--cluster"));
  spec.cluster = "given";
  CHECK(mounting::mount_of(spec)->volume_context.at("clusterID") == "given");
}

TEST_CASE("a claim remembers all of the spec, and none of its keys") {
  const Etc etc;
  MountSpec spec = etc.spec();
  spec.user = "db";
  spec.cluster = "c";
  spec.fstype = "xfs";
  spec.options = "noatime";
  spec.kms = "default";
  spec.passphrase_file = etc.folder.path() + "/passphrase";
  spec.attributes = {"a=1", "b=2=3"};
  spec.read_only = true;
  const auto mount = mounting::mount_of(spec);
  REQUIRE(mount);
  Claim claim;
  claim.notes = mount->notes;
  const MountSpec again = mounting::spec_of(claim);
  CHECK(again.image == spec.image);
  CHECK(again.dir == spec.dir);
  CHECK(again.conf == spec.conf);
  CHECK(again.keyring == spec.keyring);
  CHECK(again.attributes == spec.attributes);
  CHECK(again.read_only);
  CHECK_FALSE(again.block);
  const auto same = mounting::mount_of(again);
  REQUIRE(same);
  CHECK(same->usage == mount->usage);
  CHECK(same->volume == mount->volume);
  CHECK(same->volume_context == mount->volume_context);
  for (const auto& [key, value] : mount->notes) {
    CHECK(value.find("AQ") == std::string::npos);
    CHECK(value.find("sesame") == std::string::npos);
  }
}

TEST_CASE("a file of mounts.d describes one mount, and an error in it names the line") {
  const auto spec = mounting::parse_mount_file(
      "# the database\n image = rbd/db\ndir=/srv/db\n\noptions = noatime,nodev\nread-only = true\nattribute = a=1\n"
      "attribute = b=2\n");
  REQUIRE(spec);
  CHECK(spec->image == "rbd/db");
  CHECK(spec->dir == "/srv/db");
  CHECK(spec->options == "noatime,nodev");
  CHECK(spec->read_only);
  CHECK(spec->attributes == std::vector<std::string>{"a=1", "b=2"});
  CHECK(spec->user == "admin");
  const std::string both = "image=a\ndir=/b\n";
  CHECK_THAT(mounting::parse_mount_file(both + "imgae=b\n").error().text, ContainsSubstring("line 3"));
  CHECK_THAT(mounting::parse_mount_file(both + "block=yes\n").error().text, ContainsSubstring("line 3"));
  CHECK_THAT(mounting::parse_mount_file(both + "nothing\n").error().text, ContainsSubstring("line 3"));
  CHECK_FALSE(mounting::parse_mount_file("image=a\n"));
  CHECK_FALSE(mounting::parse_mount_file(""));
}

TEST_CASE("only the .conf files of a folder are read, in order, and a bad one does not stop the others") {
  const test::Folder folder;
  std::ofstream(folder.path() + "/b.conf") << "image=b\ndir=/b\n";
  std::ofstream(folder.path() + "/a.conf") << "nonsense\n";
  std::ofstream(folder.path() + "/c.conf~") << "image=c\ndir=/c\n";
  const auto files = mounting::read_mount_files(folder.path());
  REQUIRE(files.size() == 2);
  CHECK_THAT(files[0].spec.error().text, ContainsSubstring("a.conf"));
  CHECK(files[1].spec->image == "b");
  CHECK(mounting::read_mount_files(folder.path() + "/none").empty());
}

TEST_CASE("a unit has every option, quoted for systemd, and an agent that restarts does not end its mount") {
  mounting::Options ask;
  ask.spec.image = "rbd/100% \"db\"";
  ask.spec.dir = "/srv/$db";
  ask.spec.user = "db";
  ask.spec.attributes = {"a=1"};
  ask.spec.read_only = true;
  const std::string unit = mounting::unit_of(ask, "/usr/bin/corbd");
  CHECK_THAT(unit, ContainsSubstring("ExecStart=\"/usr/bin/corbd\" mount --wait --timeout 300 --user \"db\" "
                                     "--attribute \"a=1\" --read-only \"rbd/100%% \\\"db\\\"\" \"/srv/$$db\"\n"));
  CHECK_THAT(unit, ContainsSubstring("ExecStop=\"/usr/bin/corbd\" unmount --timeout 300 \"/srv/$$db\"\n"));
  CHECK_THAT(unit, ContainsSubstring("Before=remote-fs.target\n"));
  CHECK_THAT(unit, ContainsSubstring("Description=RBD image rbd/100%% \"db\" at /srv/$db\n"));
  CHECK(unit.find("Requires=corbd") == std::string::npos);
  CHECK(unit.find("BindsTo=") == std::string::npos);
}

TEST_CASE("the list says what is wrong with a mount, and what to do") {
  using At = PathState::At;
  using Phase = Claim::Phase;
  manager::Manager::Held held;
  held.claim.target = "/srv/db";
  held.claim.volume.name = "rbd/db";
  const auto word = [&](Phase phase, At at) {
    held.claim.phase = phase;
    held.sight.at = at;
    const auto state = mounting::state_of(held);
    CHECK(state.hint.empty() == (state.word == "mounted"));
    return state.word;
  };
  CHECK(word(Phase::mounted, At::mounted) == "mounted");
  CHECK(word(Phase::mounted, At::dead) == "dead");
  CHECK(word(Phase::mounted, At::unknown) == "unknown");
  CHECK(word(Phase::mounted, At::folder) == "unmounted");
  CHECK(word(Phase::mounting, At::mounted) == "half-mounted");
  CHECK(word(Phase::unmounting, At::mounted) == "half-unmounted");
  CHECK(word(Phase::leaving, At::nothing) == "half-unmounted");
  held.claim.again = true;
  CHECK(word(Phase::leaving, At::nothing) == "unmounted");
  CHECK(word(Phase::unmounting, At::mounted) == "half-unmounted");
  held.claim.again = false;
  held.another = true;
  CHECK(word(Phase::mounted, At::mounted) == "hidden");
  held.another = false;
  word(Phase::leaving, At::nothing);
  CHECK_THAT(mounting::mounts_table({held}), ContainsSubstring("/srv/db"));
  CHECK(mounting::mounts_json({held}).at(0).at("state").as_string() == "half-unmounted");
  CHECK(mounting::mounts_table({}) == "nothing is mounted\n");
}
