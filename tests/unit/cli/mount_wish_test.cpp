// What a person writes of a mount, on the command line or in a file, and what becomes of it.
#include "mount_wish.hpp"

#include <filesystem>
#include <fstream>

#include "mount_view.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using cli::Mounts;
using manager::Attachment;
using manager::Claim;
using manager::Sight;

namespace {

struct Etc {
  test::Folder folder;
  Etc() {
    std::ofstream(folder.path() + "/ceph.conf") << "[global]\nfsid = f-1\nmon_host = a\n";
    std::ofstream(folder.path() + "/keyring") << "[client.admin]\nkey = AQadmin==\n[client.db]\nkey = AQdb==\n";
    std::ofstream(folder.path() + "/passphrase") << "open sesame\n";
  }
  Mounts::Wish wish(const std::string& image = "rbd/db") const {
    Mounts::Wish made;
    made.image = image;
    made.dir = "/srv/db";
    made.conf = folder.path() + "/ceph.conf";
    made.keyring = folder.path() + "/keyring";
    return made;
  }
};

errc code_of(const Mounts::Wish& wish) {
  const auto made = cli::mount_of(wish);
  return made ? errc::ok : made.error().code;
}

}  // namespace

TEST_CASE("an image becomes a static volume of the host's cluster, with its user's key") {
  const Etc etc;
  Mounts::Wish wish = etc.wish();
  wish.user = "db";
  wish.options = "noatime,nodev";
  const auto mount = cli::mount_of(wish);
  REQUIRE(mount);
  CHECK(mount->volume.external_id == "db");
  CHECK(mount->volume.name == "rbd/db");
  CHECK(mount->volume_context.at("staticVolume") == "true");
  CHECK(mount->volume_context.at("pool") == "rbd");
  CHECK(mount->volume_context.at("clusterID") == "f-1");
  CHECK(mount->secrets.at("userID").reveal() == "db");
  CHECK(mount->secrets.at("userKey").reveal() == "AQdb==");
  CHECK(mount->target == "/srv/db");
  CHECK(mount->usage.fstype == "ext4");
  CHECK(mount->usage.mount_options == std::vector<std::string>{"noatime", "nodev"});
  CHECK(mount->usage.access_mode == "SINGLE_NODE_MULTI_WRITER");
  CHECK(cli::mount_of(etc.wish("db"))->volume.name == "rbd/db");
}

TEST_CASE("a provisioned volume is known by its ID, and needs no pool") {
  const Etc etc;
  const std::string id = "0001-0009-rook-ceph-0000000000000002-50d53503-9da1-11ed-847e-bacf8f2f1297";
  const auto mount = cli::mount_of(etc.wish(id));
  REQUIRE(mount);
  CHECK(mount->volume.external_id == id);
  CHECK_FALSE(mount->volume_context.contains("staticVolume"));
}

TEST_CASE("read-only, raw block, encryption and attributes reach the plugin") {
  const Etc etc;
  Mounts::Wish wish = etc.wish();
  wish.read_only = true;
  CHECK(cli::mount_of(wish)->usage.access_mode == "MULTI_NODE_READER_ONLY");
  CHECK(cli::mount_of(wish)->usage.read_only);
  wish = etc.wish();
  wish.block = true;
  CHECK(cli::mount_of(wish)->usage.attachment == Attachment::block);
  CHECK(cli::mount_of(wish)->usage.fstype.empty());
  wish = etc.wish();
  wish.kms = "default";
  wish.passphrase_file = etc.folder.path() + "/passphrase";
  wish.attributes = {"mapOptions=nbd:notrim", "pool=other"};
  const auto mount = cli::mount_of(wish);
  REQUIRE(mount);
  CHECK(mount->volume_context.at("encrypted") == "true");
  CHECK(mount->volume_context.at("encryptionKMSID") == "default");
  CHECK(mount->secrets.at("encryptionPassphrase").reveal() == "open sesame\n");
  CHECK(mount->volume_context.at("mapOptions") == "nbd:notrim");
  CHECK(mount->volume_context.at("pool") == "other");
}

TEST_CASE("what makes no mount is refused before anything is called") {
  const Etc etc;
  for (const char* bad : {"pool/space/image", "/image", "pool/", "pool/image@snap", ""})
    CHECK(code_of(etc.wish(bad)) == errc::invalid_argument);
  Mounts::Wish wish = etc.wish();
  wish.dir = "srv";
  CHECK(code_of(wish) == errc::invalid_argument);
  wish = etc.wish();
  wish.block = true;
  wish.fstype = "xfs";
  CHECK(code_of(wish) == errc::invalid_argument);
  wish = etc.wish();
  wish.user = "nobody";
  CHECK(code_of(wish) == errc::not_found);
  wish = etc.wish();
  wish.conf = "/none";
  CHECK_THAT(cli::mount_of(wish).error().text, ContainsSubstring("--cluster"));
  wish.cluster = "given";
  CHECK(cli::mount_of(wish)->volume_context.at("clusterID") == "given");
}

TEST_CASE("a claim remembers all of the wish, and none of its keys") {
  const Etc etc;
  Mounts::Wish wish = etc.wish();
  wish.user = "db";
  wish.cluster = "c";
  wish.fstype = "xfs";
  wish.options = "noatime";
  wish.kms = "default";
  wish.passphrase_file = etc.folder.path() + "/passphrase";
  wish.attributes = {"a=1", "b=2=3"};
  wish.read_only = true;
  const auto mount = cli::mount_of(wish);
  REQUIRE(mount);
  Claim claim;
  claim.notes = mount->notes;
  const Mounts::Wish again = cli::wish_of(claim);
  CHECK(again.image == wish.image);
  CHECK(again.dir == wish.dir);
  CHECK(again.conf == wish.conf);
  CHECK(again.keyring == wish.keyring);
  CHECK(again.attributes == wish.attributes);
  CHECK(again.read_only);
  CHECK_FALSE(again.block);
  const auto same = cli::mount_of(again);
  REQUIRE(same);
  CHECK(same->usage == mount->usage);
  CHECK(same->volume == mount->volume);
  CHECK(same->volume_context == mount->volume_context);
  for (const auto& [key, value] : mount->notes) {
    CHECK(value.find("AQ") == std::string::npos);
    CHECK(value.find("sesame") == std::string::npos);
  }
}

TEST_CASE("a file of mounts.d says one mount, and a mistake in it names its line") {
  const auto wish = cli::parse_mount_file(
      "# the database\n image = rbd/db\ndir=/srv/db\n\noptions = noatime,nodev\nread-only = true\nattribute = a=1\n"
      "attribute = b=2\n");
  REQUIRE(wish);
  CHECK(wish->image == "rbd/db");
  CHECK(wish->dir == "/srv/db");
  CHECK(wish->options == "noatime,nodev");
  CHECK(wish->read_only);
  CHECK(wish->attributes == std::vector<std::string>{"a=1", "b=2"});
  CHECK(wish->user == "admin");
  const std::string both = "image=a\ndir=/b\n";
  CHECK_THAT(cli::parse_mount_file(both + "imgae=b\n").error().text, ContainsSubstring("line 3"));
  CHECK_THAT(cli::parse_mount_file(both + "block=yes\n").error().text, ContainsSubstring("line 3"));
  CHECK_THAT(cli::parse_mount_file(both + "nothing\n").error().text, ContainsSubstring("line 3"));
  CHECK_FALSE(cli::parse_mount_file("image=a\n"));
  CHECK_FALSE(cli::parse_mount_file(""));
}

TEST_CASE("of a folder only its .conf files count, by name, and a bad one keeps no other from being read") {
  const test::Folder folder;
  std::ofstream(folder.path() + "/b.conf") << "image=b\ndir=/b\n";
  std::ofstream(folder.path() + "/a.conf") << "nonsense\n";
  std::ofstream(folder.path() + "/c.conf~") << "image=c\ndir=/c\n";
  const auto files = cli::read_mount_files(folder.path());
  REQUIRE(files.size() == 2);
  CHECK_THAT(files[0].wish.error().text, ContainsSubstring("a.conf"));
  CHECK(files[1].wish->image == "b");
  CHECK(cli::read_mount_files(folder.path() + "/none").empty());
}

TEST_CASE("a unit has every option, quoted for systemd, and an agent that restarts does not end its mount") {
  Mounts ask;
  ask.wish.image = "rbd/100% \"db\"";
  ask.wish.dir = "/srv/$db";
  ask.wish.user = "db";
  ask.wish.attributes = {"a=1"};
  ask.wish.read_only = true;
  const std::string unit = cli::unit_of(ask, "/usr/bin/corbd");
  CHECK_THAT(unit, ContainsSubstring("ExecStart=\"/usr/bin/corbd\" mount --wait --timeout 300 --user \"db\" "
                                     "--attribute \"a=1\" --read-only \"rbd/100%% \\\"db\\\"\" \"/srv/$$db\"\n"));
  CHECK_THAT(unit, ContainsSubstring("ExecStop=\"/usr/bin/corbd\" unmount --timeout 300 \"/srv/$$db\"\n"));
  CHECK_THAT(unit, ContainsSubstring("Before=remote-fs.target\n"));
  CHECK_THAT(unit, ContainsSubstring("Description=RBD image rbd/100%% \"db\" at /srv/$db\n"));
  CHECK(unit.find("Requires=corbd") == std::string::npos);
  CHECK(unit.find("BindsTo=") == std::string::npos);
}

TEST_CASE("the list says what is wrong with a mount, and what to do") {
  using At = Sight::At;
  using Phase = Claim::Phase;
  manager::Manager::Held held;
  held.claim.target = "/srv/db";
  held.claim.volume.name = "rbd/db";
  const auto word = [&](Phase phase, At at) {
    held.claim.phase = phase;
    held.sight.at = at;
    const auto state = cli::state_of(held);
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
  CHECK_THAT(cli::mounts_table({held}), ContainsSubstring("/srv/db"));
  CHECK(cli::mounts_json({held}).at(0).at("state").as_string() == "half-unmounted");
  CHECK(cli::mounts_table({}) == "nothing is mounted\n");
}
