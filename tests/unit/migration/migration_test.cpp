#include "inputs.hpp"

#include <algorithm>

#include "corbd/cephcsi/handle.hpp"
#include "corbd/core/base64.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::migration;

namespace {

const std::string kVolume = "0001-0004-prod-0000000000000002-7d9a3f1e-0000-0000-0000-000000000001";
const std::string kStaging = "/var/lib/kubelet/plugins/kubernetes.io/csi/rbd.csi.ceph.com/sha/globalmount";

cephcsi::Stash stash_of(bool nbd) {
  cephcsi::Stash stash;
  stash.pool = "rbd";
  stash.image = "csi-vol-1";
  stash.nbd = nbd;
  if (nbd) stash.device = "/dev/nbd0";
  return stash;
}

VolumeFacts known(std::map<std::string, std::string> attributes) {
  kube::PersistentVolume volume;
  volume.name = "pvc-1";
  volume.driver = "rbd.csi.ceph.com";
  volume.handle = kVolume;
  volume.mode = "Filesystem";
  volume.bound = true;
  volume.access_modes = {"ReadWriteOnce"};
  volume.attributes = std::move(attributes);
  volume.node_stage_secret = kube::Reference{"rbd", "ceph-csi"};
  volume.claim = kube::Reference{"data", "shop"};
  return {volume, StageSecret{true, true, true, KeyType::aes}, result<>()};
}

/// A node with one filesystem, and nothing wrong.
Moving node() {
  Moving moving;
  moving.driver = "rbd.csi.ceph.com";
  moving.kernel = "6.12.1";
  moving.nbd_there = true;
  moving.rbd = Module::present;
  moving.clusters = std::vector<rbd::ClusterEntry>{{"prod", {"m1"}, "", {}}};
  StagedAt at;
  at.volume_id = kVolume;
  at.path = kStaging;
  at.stash_version = 3;
  at.mounted = true;
  moving.staged.push_back(at);
  moving.facts[kVolume] = known({{"mounter", "rbd-nbd"}});
  return moving;
}
/// As ceph-csi staged it with the kernel's client.
Moving by_kernel() {
  auto moving = node();
  moving.staged[0].stash = stash_of(false);
  moving.staged[0].device = "rbd0";
  moving.krbd = {{"rbd0", "rbd", "", "csi-vol-1"}};
  moving.facts[kVolume] = known({});
  return moving;
}
/// As ceph-csi staged it with rbd-nbd.
Moving by_rbd_nbd() {
  auto moving = node();
  moving.staged[0].stash = stash_of(true);
  moving.staged[0].device = "nbd0";
  moving.nbd = {{"nbd0", kVolume, {4711}, 0}};
  moving.facts[kVolume] = known({{"mounter", "rbd-nbd"}, {"mapOptions", "nbd:rbd_cache=false"}});
  return moving;
}
/// As this agent serves it.
Moving by_agent() {
  auto moving = by_rbd_nbd();
  moving.nbd[0].others.clear();
  moving.agent = true;
  moving.recorded = {kVolume};
  moving.states = std::map<std::string, std::string>{{kVolume, "staged"}};
  return moving;
}

Prospect only(const Outlook& outlook) {
  REQUIRE(outlook.volumes.size() == 1);
  return outlook.volumes[0];
}

Finding named(const Prospect& volume, const std::string& check) {
  for (const auto& finding : volume.findings)
    if (finding.check == check) return finding;
  return {check, Grade::ok, "no such finding", {}};
}

Grade migration_of(const Moving& moving, const std::string& check) {
  return named(only(before_migration(moving)), check).verdict;
}

}  // namespace

TEST_CASE("before a migration the kernel's volumes keep their client without a break, and nothing is found") {
  const auto outlook = before_migration(by_kernel());
  CHECK(exit_code(outlook) == 0);
  const auto volume = only(outlook);
  CHECK(volume.findings.empty());
  CHECK(volume.now == "the kernel");
  CHECK_THAT(volume.after, ContainsSubstring("without a break"));
  CHECK(volume.device == "/dev/rbd0");
  CHECK(volume.claim == "shop/data");
}

TEST_CASE("before a migration a volume of rbd-nbd is told to wait for corbd, with rbd-nbd's process") {
  const auto outlook = before_migration(by_rbd_nbd());
  CHECK(exit_code(outlook) == 1);
  const auto volume = only(outlook);
  CHECK(volume.now == "rbd-nbd, process 4711");
  CHECK(volume.after == "corbd, in place");
  CHECK(named(volume, "io").verdict == Grade::warning);
}

TEST_CASE("before a migration the cache of rbd-nbd fails, unless the volume's attributes switch it off") {
  auto moving = by_rbd_nbd();
  const auto with = [&](const std::string& options) {
    moving.facts[kVolume] = known({{"mounter", "rbd-nbd"}, {"mapOptions", options}});
    return migration_of(moving, "cache");
  };
  CHECK(with("nbd:rbd_cache=false") == Grade::ok);
  CHECK(with("nbd:try-netlink,rbd-cache=false") == Grade::ok);
  CHECK(with("nbd:rbd_cache=false,rbd_cache=true") == Grade::failure);
  CHECK(with("") == Grade::failure);
  CHECK(with("krbd:rbd_cache=false") == Grade::failure);
  CHECK(exit_code(before_migration(moving)) == 2);
  moving.facts.clear();
  CHECK(migration_of(moving, "cache") == Grade::failure);
}

TEST_CASE("before a migration the cache of rbd-nbd is no trouble where the process itself runs without it") {
  auto moving = by_rbd_nbd();
  moving.facts[kVolume] = known({{"mounter", "rbd-nbd"}});
  moving.nbd[0].cache_off = false;
  CHECK_THAT(named(only(before_migration(moving)), "cache").said, ContainsSubstring("runs with its cache"));
  moving.facts[kVolume] = known({{"mounter", "rbd-nbd"}, {"mapOptions", "nbd:rbd_cache=false"}});
  CHECK(migration_of(moving, "cache") == Grade::failure);
  moving.facts[kVolume] = known({{"mounter", "rbd-nbd"}});
  moving.nbd[0].cache_off = true;
  CHECK(migration_of(moving, "cache") == Grade::ok);
  moving.nbd[0].cache_off = Error{errc::unavailable, "Permission denied"};
  CHECK(migration_of(moving, "cache") == Grade::failure);
  CHECK_THAT(named(only(before_migration(moving)), "cache").said, ContainsSubstring("not known (Permission denied)"));
}

TEST_CASE("before a migration a volume that is not attached here fails: corbd would not serve it by itself") {
  auto moving = by_rbd_nbd();
  CHECK(migration_of(moving, "attachment") == Grade::ok);
  moving.facts[kVolume].attached = Error{errc::failed_precondition, "its VolumeAttachment is not attached"};
  CHECK(migration_of(moving, "attachment") == Grade::failure);
  CHECK_THAT(named(only(before_migration(moving)), "attachment").way_out, ContainsSubstring("restart kubelet at once"));
  moving.facts[kVolume].attached = Error{errc::permission_denied, "may not get it"};
  CHECK(migration_of(moving, "attachment") == Grade::warning);
}

TEST_CASE(
    "where the driver attaches nothing, a volume is told to wait for a stage, and its lock is the proof that is left") {
  auto moving = by_rbd_nbd();
  moving.facts[kVolume].attached = Error{errc::not_found, "its VolumeAttachment: not found"};
  moving.attaches = false;
  const auto outlook = before_migration(moving);
  const auto found = named(only(outlook), "attachment");
  CHECK(found.verdict == Grade::failure);
  CHECK_THAT(found.said, ContainsSubstring("attachRequired: false") && ContainsSubstring("lock that rbd-nbd leaves"));
  CHECK_THAT(found.way_out, ContainsSubstring("restart kubelet") && ContainsSubstring("--without-proof"));
  CHECK_THAT(only(outlook).after, ContainsSubstring("nobody until its next stage"));
  CHECK(std::ranges::any_of(outlook.node, [](const Finding& one) { return one.check == "csidriver"; }));
}

TEST_CASE("where the driver attaches nothing, SIGTERM costs rbd-nbd's lock, and an image without one has no proof") {
  auto moving = by_rbd_nbd();
  moving.facts[kVolume] = known({{"mounter", "rbd-nbd"}, {"imageFeatures", "layering"}});
  CHECK_THAT(named(only(before_migration(moving)), "cache").way_out, !ContainsSubstring("lock"));
  CHECK(migration_of(moving, "exclusive-lock") == Grade::warning);
  moving.attaches = false;
  CHECK_THAT(named(only(before_migration(moving)), "cache").way_out, ContainsSubstring("gives its lock back"));
  CHECK(migration_of(moving, "exclusive-lock") == Grade::failure);
}

TEST_CASE("where the driver attaches nothing, the kernel's volumes go on, and ceph-csi heals none of corbd's") {
  auto moving = by_kernel();
  moving.attaches = false;
  CHECK(only(before_migration(moving)).findings.empty());
  moving = by_agent();
  moving.attaches = false;
  CHECK(only(before_rollback(moving)).after == "nobody");
  CHECK_THAT(named(only(before_rollback(moving)), "io").said, ContainsSubstring("attachRequired: false"));
}

TEST_CASE("before a rollback a volume without a VolumeAttachment has nobody, whatever the CSIDriver says") {
  auto moving = by_agent();
  moving.facts[kVolume].attached = Error{errc::not_found, "its VolumeAttachment: not found"};
  moving.attaches = GENERATE(result<bool>(true), result<bool>(Error{errc::permission_denied, "no"}));
  CHECK(only(before_rollback(moving)).after == "nobody");
  CHECK(exit_code(before_rollback(moving)) == 2);
}

TEST_CASE("a kernel without its rbd module stands in the way of a volume that it is asked about first") {
  auto moving = by_rbd_nbd();
  moving.rbd = Module::absent;
  const auto with = [&](const char* mounter, const char* others) {
    moving.facts[kVolume] = known({{"mounter", mounter}, {"tryOtherMounters", others}});
    return migration_of(moving, "client");
  };
  CHECK(with("rbd", "true") == Grade::failure);
  CHECK(with("rbd", "false") == Grade::failure);
  CHECK(with("rbd-nbd", "true") == Grade::ok);
}

TEST_CASE("a CSIDriver that cannot be read is said, and its volumes count as attached") {
  auto moving = by_rbd_nbd();
  moving.facts[kVolume].attached = Error{errc::not_found, "its VolumeAttachment: not found"};
  moving.attaches = Error{errc::permission_denied, "may not get csidrivers"};
  const auto outlook = before_migration(moving);
  CHECK(outlook.node.back().check == "csidriver");
  CHECK_THAT(outlook.node.back().said, ContainsSubstring("may not get csidrivers"));
  CHECK_THAT(named(only(outlook), "attachment").said, ContainsSubstring("its VolumeAttachment: not found"));
}

TEST_CASE("a secret that is missing fails the migration, and one that cannot be read is warned of") {
  auto moving = by_kernel();
  moving.facts[kVolume].secret = Error{errc::not_found, "Secret ceph-csi/rbd: it does not exist"};
  CHECK(migration_of(moving, "secret") == Grade::failure);
  moving.facts[kVolume].secret = Error{errc::permission_denied, "may not get it"};
  CHECK(migration_of(moving, "secret") == Grade::warning);
}

TEST_CASE("a volume that the agent has but does not serve fails both ways, and the agent's silence is warned of") {
  auto moving = by_agent();
  moving.states = std::map<std::string, std::string>{{kVolume, "unproven"}};
  for (const auto& outlook : {before_migration(moving), before_rollback(moving)}) {
    CHECK(named(only(outlook), "state").verdict == Grade::failure);
    CHECK_THAT(named(only(outlook), "state").way_out, ContainsSubstring("leave corbd here until it is proven"));
    CHECK(only(outlook).now == "corbd: unproven");
  }
  moving.states = std::map<std::string, std::string>();
  CHECK(migration_of(moving, "state") == Grade::failure);
  moving.states = Error{errc::unavailable, "no answer"};
  CHECK(migration_of(moving, "state") == Grade::warning);
}

TEST_CASE("without the host's processes it is not known who serves, and nobody is told to restart a pod") {
  auto moving = by_rbd_nbd();
  moving.nbd[0].others.clear();
  moving.daemons = Error{errc::failed_precondition, "this is not the host's PID namespace"};
  const auto volume = only(before_migration(moving));
  CHECK_THAT(volume.now, ContainsSubstring("not known"));
  CHECK(volume.after == "not known");
  CHECK(named(volume, "io").verdict == Grade::ok);
  CHECK(exit_code(before_migration(moving)) == 1);
}

TEST_CASE("what cannot be read of kubelet, mounts, records or cluster-mapping.json fails, also with nothing staged") {
  auto moving = node();
  moving.staged.clear();
  SECTION("kubelet's folder") { moving.kubelet = Error{errc::unavailable, "no"}; }
  SECTION("mounts") { moving.mounts = Error{errc::unavailable, "no"}; }
  SECTION("records") { moving.records = Error{errc::unavailable, "no"}; }
  CHECK(exit_code(before_rollback(moving)) == 2);
  CHECK(exit_code(before_migration(moving)) == 2);
  moving = by_kernel();
  moving.mappings = Error{errc::invalid_argument, "no"};
  CHECK(exit_code(before_migration(moving)) == 2);
}

TEST_CASE("devices with nothing staged, and another driver's folder instead of this one's, are warned of") {
  auto moving = node();
  moving.staged.clear();
  SECTION("an nbd device") { moving.nbd = {{"nbd0", "v", {}, 0}}; }
  SECTION("a device of the kernel's client") { moving.krbd = {{"rbd0", "rbd", "", "a"}}; }
  SECTION("another driver") { moving.other_drivers = {"rook-ceph.rbd.csi.ceph.com"}; }
  CHECK(exit_code(before_migration(moving)) == 1);
  CHECK(exit_code(before_rollback(moving)) == 1);
}

TEST_CASE("who serves a volume from its next stage on is said, and by whose word") {
  struct Case {
    std::map<std::string, std::string> attributes;
    const char* rules;
    cephcsi::Mounter unnamed;
    std::string says;
  };
  const auto [attributes, rules, unnamed, says] = GENERATE(values<Case>({
      {{}, "[]", cephcsi::Mounter::krbd, "the kernel, by --default-mounter"},
      {{}, "[]", cephcsi::Mounter::nbd, "corbd, by --default-mounter"},
      {{{"mounter", "rbd"}}, "[]", cephcsi::Mounter::nbd, "the kernel, by its attribute mounter"},
      {{{"mounter", "rbd"}},
       R"([{"clusterID":"prod","mounter":"rbd-nbd"}])",
       cephcsi::Mounter::krbd,
       "corbd, by mounters.json"},
      {{{"mounter", "rbd"}},
       R"([{"clusterID":"other","mounter":"rbd-nbd"}])",
       cephcsi::Mounter::krbd,
       "the kernel, by its attribute mounter"},
      {{{"mounter", "rbd"}, {"tryOtherMounters", "true"}}, "[]", cephcsi::Mounter::krbd, "or corbd if the image"},
  }));
  auto moving = by_kernel();
  moving.facts[kVolume] = known(attributes);
  moving.rules = cephcsi::parse_mounter_rules(rules);
  moving.unnamed = unnamed;
  CHECK_THAT(only(before_migration(moving)).next_stage, ContainsSubstring(says));
}

TEST_CASE("a device that corbd would not adopt fails the migration") {
  SECTION("one without an identifier: its I/O fails when rbd-nbd's timeout is over") {
    auto moving = by_rbd_nbd();
    moving.nbd[0].backend = "";
    CHECK(migration_of(moving, "identifier") == Grade::failure);
    CHECK_THAT(only(before_migration(moving)).after, ContainsSubstring("refuses"));
  }
  SECTION("one with another volume's identifier") {
    auto moving = by_rbd_nbd();
    moving.nbd[0].backend = "another";
    CHECK(migration_of(moving, "identifier") == Grade::failure);
  }
  SECTION("one of two with the volume's identifier") {
    auto moving = by_rbd_nbd();
    moving.nbd.push_back({"nbd1", kVolume, {1}, 0});
    CHECK(migration_of(moving, "identifier") == Grade::failure);
  }
  SECTION("one that ceph-csi did not note") {
    auto moving = by_rbd_nbd();
    moving.staged[0].stash = std::optional<cephcsi::Stash>();
    CHECK(migration_of(moving, "image-meta.json") == Grade::failure);
  }
  SECTION("one beside the device that ceph-csi noted") {
    auto moving = by_rbd_nbd();
    (*moving.staged[0].stash)->device = "/dev/nbd7";
    CHECK(migration_of(moving, "device") == Grade::failure);
  }
  SECTION("one that ceph-csi noted for its other client") {
    auto moving = by_rbd_nbd();
    (*moving.staged[0].stash)->nbd = false;
    CHECK(migration_of(moving, "device") == Grade::failure);
    moving = by_kernel();
    (*moving.staged[0].stash)->nbd = true;
    CHECK(migration_of(moving, "device") == Grade::failure);
  }
  SECTION("one of two of the kernel's for one image, or one of another image") {
    auto moving = by_kernel();
    moving.krbd.push_back({"rbd1", "rbd", "", "csi-vol-1"});
    CHECK(migration_of(moving, "device") == Grade::failure);
    moving = by_kernel();
    moving.krbd[0].image = "csi-vol-2";
    CHECK(migration_of(moving, "device") == Grade::failure);
  }
}

TEST_CASE("an image-meta.json that cannot be read fails the migration, and one of a later version is warned of") {
  auto moving = by_kernel();
  moving.staged[0].stash_version = 4;
  CHECK(migration_of(moving, "image-meta.json") == Grade::warning);
  moving.staged[0].stash = Error{errc::state_corrupt, "not a JSON object"};
  CHECK(migration_of(moving, "image-meta.json") == Grade::failure);
}

TEST_CASE("I/O that waits already fails the migration, and says how many requests") {
  auto moving = by_rbd_nbd();
  moving.nbd[0].others.clear();
  moving.nbd[0].waiting = 3;
  CHECK(migration_of(moving, "io") == Grade::failure);
  CHECK(only(before_migration(moving)).now == "nobody: 3 requests wait");
}

TEST_CASE("attributes that a stage refuses fail the migration, and are named") {
  struct Case {
    std::map<std::string, std::string> attributes;
    std::string says;
  };
  const auto [attributes, says] = GENERATE(values<Case>({
      {{{"mounter", "fuse"}}, "fuse"},
      {{{"encrypted", "true"}, {"encryptionType", "file"}}, "fscrypt"},
      {{{"mounter", "rbd-nbd"}, {"mapOptions", "nbd:rbd_cache=true"}}, "mapOptions"},
  }));
  auto moving = by_kernel();
  moving.facts[kVolume] = known(attributes);
  const auto finding = named(only(before_migration(moving)), "attributes");
  CHECK(finding.verdict == Grade::failure);
  CHECK_THAT(finding.said, ContainsSubstring(says));
}

TEST_CASE("an encrypted volume needs a KMS that corbd knows, its passphrase, and a stash that says so") {
  auto moving = by_kernel();
  (*moving.staged[0].stash)->encrypted = true;
  moving.facts[kVolume] = known({{"encrypted", "true"}});
  CHECK(before_migration(moving).volumes[0].findings.empty());
  moving.facts[kVolume].secret->passphrase = false;
  CHECK(migration_of(moving, "secret") == Grade::failure);
  moving.facts[kVolume] = known({{"encrypted", "true"}, {"encryptionKMSID", "v"}});
  moving.kms_config = R"({"v":{"encryptionKMSType":"vault"}})";
  CHECK(migration_of(moving, "encryption") == Grade::failure);
  moving.kms_config = R"({"v":{"encryptionKMSType":"metadata"}})";
  CHECK(migration_of(moving, "encryption") == Grade::ok);
  (*moving.staged[0].stash)->encrypted = false;
  CHECK(migration_of(moving, "encryption") == Grade::failure);
}

TEST_CASE("a cluster must have monitors in config.json, under its name or a mapped one") {
  auto moving = by_kernel();
  moving.clusters = std::vector<rbd::ClusterEntry>{{"other", {"m1"}, "", {}}, {"prod", {}, "", {}}};
  CHECK(migration_of(moving, "cluster") == Grade::failure);
  moving.mappings = std::vector<rbd::ClusterMapping>{{{{"prod", "other"}}, {}}};
  CHECK(migration_of(moving, "cluster") == Grade::ok);
}

TEST_CASE("a stage needs a secret with a key that its client knows") {
  auto moving = by_kernel();
  moving.unnamed = cephcsi::Mounter::krbd;
  moving.facts[kVolume].volume->node_stage_secret.reset();
  CHECK(migration_of(moving, "secret") == Grade::failure);
  moving = by_kernel();
  moving.facts[kVolume].secret->key = false;
  CHECK(migration_of(moving, "secret") == Grade::failure);
  moving = by_kernel();
  moving.unnamed = cephcsi::Mounter::krbd;
  moving.facts[kVolume].secret->key_type = KeyType::aes256k;
  CHECK_THAT(named(only(before_migration(moving)), "secret").said, ContainsSubstring("aes256k"));
  moving.kernel = "7.0.1";
  CHECK(migration_of(moving, "secret") == Grade::ok);
  moving.kernel = "6.12.1";
  moving.unnamed = cephcsi::Mounter::nbd;
  CHECK(migration_of(moving, "secret") == Grade::ok);
  moving.facts[kVolume].volume->attributes = {{"mounter", "rbd"}, {"tryOtherMounters", "true"}};
  CHECK(migration_of(moving, "secret") == Grade::ok);
  CHECK_THAT(only(before_migration(moving)).next_stage, ContainsSubstring("corbd, because the kernel"));
}

TEST_CASE("a node without what the next stage needs fails the migration") {
  auto moving = by_kernel();
  moving.nbd_there = false;
  CHECK(exit_code(before_migration(moving)) == 2);
  moving = by_kernel();
  moving.unnamed = cephcsi::Mounter::krbd;
  moving.rbd = Module::absent;
  CHECK(migration_of(moving, "client") == Grade::failure);
  moving = by_kernel();
  moving.rules = Error{errc::invalid_argument, "mounters.json: rule 1"};
  CHECK(exit_code(before_migration(moving)) == 2);
  // ceph-csi does not read it.
  moving.agent = true;
  CHECK(exit_code(before_rollback(moving)) == 0);
}

TEST_CASE("what only the API server knows is said to be unknown, and is no OK") {
  auto moving = by_kernel();
  moving.api = Error{errc::failed_precondition, "this is not a pod"};
  moving.facts.clear();
  const auto outlook = before_migration(moving);
  CHECK(exit_code(outlook) == 1);
  CHECK(only(outlook).next_stage == "not known");
  CHECK_THAT(outlook.node.back().said, ContainsSubstring("this is not a pod"));
  moving.api = {};
  moving.facts[kVolume].volume = Error{errc::not_found, "PersistentVolume pvc-1: it does not exist"};
  CHECK(migration_of(moving, "attributes") == Grade::warning);
}

TEST_CASE("of a node with nothing staged nothing has to be known") {
  auto moving = node();
  moving.staged.clear();
  moving.facts.clear();
  moving.api = moving.daemons = Error{errc::unavailable, "no"};
  CHECK(exit_code(before_migration(moving)) == 0);
  CHECK(exit_code(before_rollback(moving)) == 0);
}

TEST_CASE("a volume that corbd serves already has nothing before it") {
  const auto outlook = before_migration(by_agent());
  CHECK(exit_code(outlook) == 0);
  CHECK(only(outlook).now == "corbd");
}

TEST_CASE("a staging folder without a device is nothing to move") {
  auto moving = by_kernel();
  moving.staged[0].device = "";
  moving.krbd.clear();
  CHECK(exit_code(before_migration(moving)) == 0);
  CHECK_THAT(only(before_migration(moving)).now, ContainsSubstring("no device"));
  CHECK(exit_code(before_rollback(moving)) == 1);  // no agent answers
}

TEST_CASE("an empty folder of kubelet's is no staged volume, unless a device carries its volume ID") {
  auto moving = by_rbd_nbd();
  auto& at = moving.staged[0];
  at.stash = std::optional<cephcsi::Stash>();
  at.mounted = false;
  at.device = "";
  CHECK(before_migration(moving).volumes.size() == 1);
  moving.nbd.clear();
  CHECK(before_migration(moving).volumes.empty());
  CHECK(before_rollback(moving).volumes.empty());
}

TEST_CASE("before a rollback a filesystem with mounter rbd-nbd waits for ceph-csi's healer") {
  const auto outlook = before_rollback(by_agent());
  CHECK(exit_code(outlook) == 1);
  const auto volume = only(outlook);
  CHECK(volume.now == "corbd");
  CHECK_THAT(volume.after, ContainsSubstring("rbd-nbd"));
  CHECK_THAT(named(volume, "io").said, ContainsSubstring("30 s") && ContainsSubstring("24 h"));
}

TEST_CASE("before a rollback what ceph-csi does not heal fails: nobody would serve it, and its unstage would lie") {
  auto moving = by_agent();
  SECTION("raw block, by its folder or its PersistentVolume") {
    const bool by_folder = GENERATE(true, false);
    moving.staged[0].block = by_folder;
    moving.facts[kVolume].volume->mode = by_folder ? "" : "Block";
  }
  SECTION("a volume whose attributes do not say rbd-nbd") {
    moving.facts[kVolume] = GENERATE(known({}), known({{"mounter", "rbd"}}));
  }
  SECTION("a volume whose attributes are not known") { moving.facts.clear(); }
  SECTION("an image-meta.json that is missing, damaged, or names no device or another") {
    const int how = GENERATE(0, 1, 2, 3, 4);
    auto& stash = moving.staged[0].stash;
    if (how == 0) stash = std::optional<cephcsi::Stash>();
    if (how == 1) stash = Error{errc::state_corrupt, "not a JSON object"};
    if (how == 2) (*stash)->device = "";
    if (how == 3) (*stash)->device = "/dev/nbd9";
    if (how == 4) (*stash)->nbd = false;
  }
  const auto outlook = before_rollback(moving);
  CHECK(exit_code(outlook) == 2);
  CHECK(only(outlook).after == "nobody");
  CHECK_THAT(named(only(outlook), "io").said, ContainsSubstring("says that it is done, and leaves /dev/nbd0"));
  CHECK_THAT(named(only(outlook), "io").way_out, ContainsSubstring("corbd drain"));
}

TEST_CASE("before a rollback the unstage of an encrypted volume is said to fail, not to lie") {
  auto moving = by_agent();
  (*moving.staged[0].stash)->encrypted = true;
  moving.facts[kVolume] = known({});
  CHECK_THAT(named(only(before_rollback(moving)), "io").said, ContainsSubstring("fails for ever"));
}

TEST_CASE("before a rollback the time that I/O waits is the volume's own") {
  auto moving = by_agent();
  moving.facts[kVolume] = known({{"mounter", "rbd-nbd"}, {"mapOptions", "nbd:reattach-timeout=300"}});
  CHECK_THAT(named(only(before_rollback(moving)), "io").said, ContainsSubstring("I/O waits for 300 s"));
}

TEST_CASE("before a rollback the kernel's volumes go on, unless ceph-csi would look for another image") {
  auto moving = by_kernel();
  moving.agent = true;
  CHECK(exit_code(before_rollback(moving)) == 0);
  CHECK_THAT(only(before_rollback(moving)).after, ContainsSubstring("without a break"));
  (*moving.staged[0].stash)->image = "csi-vol-9";
  CHECK(exit_code(before_rollback(moving)) == 2);
  CHECK_THAT(named(only(before_rollback(moving)), "unstage").said, ContainsSubstring("says that it is done"));
  moving.staged[0].stash = std::optional<cephcsi::Stash>();
  CHECK(exit_code(before_rollback(moving)) == 2);
}

TEST_CASE("before a rollback a volume that waits now, or that no folder names, fails") {
  auto moving = by_agent();
  moving.recorded.clear();
  moving.states = std::map<std::string, std::string>();
  CHECK(named(only(before_rollback(moving)), "io").verdict == Grade::failure);
  moving = by_agent();
  moving.staged.clear();
  const auto outlook = before_rollback(moving);
  CHECK(exit_code(outlook) == 2);
  CHECK(outlook.node.back().check == "/dev/nbd0");
}

TEST_CASE("before a rollback a volume that rbd-nbd serves stays rbd-nbd's") {
  auto moving = by_rbd_nbd();
  moving.agent = true;
  moving.recorded = {kVolume};
  CHECK(exit_code(before_rollback(moving)) == 0);
}

TEST_CASE("whatever is not well names a way out") {
  auto moving = by_rbd_nbd();
  moving.nbd_there = false;
  moving.api = moving.daemons = Error{errc::unavailable, "no"};
  moving.clusters = Error{errc::not_found, "no"};
  moving.rules = Error{errc::invalid_argument, "no"};
  moving.nbd[0].backend = "";
  moving.facts[kVolume] = known({{"mounter", "fuse"}});
  for (const auto& outlook : {before_migration(moving), before_rollback(moving)}) {
    for (const auto& finding : outlook.node)
      if (finding.verdict != Grade::ok) CHECK_FALSE(finding.way_out.empty());
    for (const auto& finding : outlook.volumes[0].findings) CHECK_FALSE(finding.way_out.empty());
  }
}

TEST_CASE("a secret is read for what it has, and its key for its type, not for its bytes") {
  const auto key = [](char type) { return Secret(to_base64(std::string{type, '\0'} + std::string(26, 'x'))); };
  const std::map<std::string, Secret> plain{{"userID", Secret(std::string("kubernetes"))}, {"userKey", key(1)}};
  auto read = read_stage_secret(plain);
  CHECK((read.user && read.key && !read.passphrase && read.key_type == KeyType::aes));
  read = read_stage_secret({{"key", key(2)}, {"encryptionPassphrase", Secret(std::string("p"))}});
  CHECK((read.user && read.key && read.passphrase && read.key_type == KeyType::aes256k));
  read = read_stage_secret({{"userKey", Secret(std::string("no key"))}});
  CHECK((!read.user && read.key && read.key_type == KeyType::unknown));
}

TEST_CASE("lines of mountinfo are read with their escapes and optional fields") {
  const auto lines = doctor::mount_lines(
      "36 35 43:0 / /a\\040b rw,noatime shared:1 master:2 - ext4 /dev/nbd0 rw\n"
      "37 35 0:6 /nbd1 /raw rw - devtmpfs udev rw\n"
      "38 35 broken\n");
  REQUIRE(lines.size() == 2);
  CHECK((lines[0].dev == "43:0" && lines[0].target == "/a b" && lines[0].fstype == "ext4"));
  CHECK((lines[1].root == "/nbd1" && lines[1].source == "udev"));
}
