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

device::Seen seen_as(device::Kind kind, std::uint32_t index) {
  device::Seen seen;
  seen.kind = kind;
  seen.index = seen.dev_minor = index;
  seen.dev_major = kind == device::Kind::nbd ? 43 : 252;
  return seen;
}

NbdUser by_nbd(std::uint32_t index, const std::string& backend, std::vector<int> daemons) {
  NbdUser user{seen_as(device::Kind::nbd, index), std::move(daemons)};
  user.seen.backend = backend;
  return user;
}

device::Mapped by_krbd(std::uint32_t index, const std::string& image) {
  return {seen_as(device::Kind::krbd, index), {}, {"rbd", "", image}};
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
ForecastInputs node() {
  ForecastInputs inputs;
  inputs.options.driver = "rbd.csi.ceph.com";
  inputs.kernel = "6.12.1";
  inputs.nbd_there = true;
  inputs.rbd = Module::present;
  inputs.clusters = std::vector<rbd::ClusterEntry>{{"prod", {"m1"}, "", {}}};
  StagedAt at;
  at.volume_id = kVolume;
  at.path = kStaging;
  at.stash_version = 3;
  at.mounted = true;
  inputs.staged.push_back(at);
  inputs.facts[kVolume] = known({{"mounter", "rbd-nbd"}});
  return inputs;
}
/// As ceph-csi staged it with the kernel client.
ForecastInputs by_kernel() {
  auto inputs = node();
  inputs.staged[0].stash = stash_of(false);
  inputs.staged[0].device = "rbd0";
  inputs.krbd = {by_krbd(0, "csi-vol-1")};
  inputs.facts[kVolume] = known({});
  return inputs;
}
/// As ceph-csi staged it with rbd-nbd.
ForecastInputs by_rbd_nbd() {
  auto inputs = node();
  inputs.staged[0].stash = stash_of(true);
  inputs.staged[0].device = "nbd0";
  inputs.nbd = {by_nbd(0, kVolume, {4711})};
  inputs.facts[kVolume] = known({{"mounter", "rbd-nbd"}, {"mapOptions", "nbd:rbd_cache=false"}});
  return inputs;
}
/// As this agent serves it.
ForecastInputs by_agent() {
  auto inputs = by_rbd_nbd();
  inputs.nbd[0].daemons.clear();
  inputs.agent = true;
  inputs.records.volumes = {kVolume};
  inputs.volumes = std::map<std::string, doctor::AgentVolume>{{kVolume, {"staged"}}};
  return inputs;
}

VolumeForecast only(const Forecast& forecast) {
  REQUIRE(forecast.volumes.size() == 1);
  return forecast.volumes[0];
}

Finding named(const VolumeForecast& volume, const std::string& check) {
  for (const auto& finding : volume.findings)
    if (finding.check == check) return finding;
  return {check, Grade::ok, "no such finding", {}};
}

Grade migration_of(const ForecastInputs& inputs, const std::string& check) {
  return named(only(forecast_migration(inputs)), check).verdict;
}

}  // namespace

TEST_CASE(
    "a migration forecast finds nothing wrong with a kernel client's volume, which keeps its client without a break") {
  const auto forecast = forecast_migration(by_kernel());
  CHECK(exit_code(forecast) == 0);
  const auto volume = only(forecast);
  CHECK(volume.findings.empty());
  CHECK(volume.now == "the kernel");
  CHECK_THAT(volume.after, ContainsSubstring("without a break"));
  CHECK(volume.device == "/dev/rbd0");
  CHECK(volume.claim == "shop/data");
}

TEST_CASE(
    "a migration forecast names the rbd-nbd process of a volume, and warns that I/O waits until corbd serves it") {
  const auto forecast = forecast_migration(by_rbd_nbd());
  CHECK(exit_code(forecast) == 1);
  const auto volume = only(forecast);
  CHECK(volume.now == "rbd-nbd, process 4711");
  CHECK(volume.after == "corbd, in place");
  CHECK(named(volume, "io").verdict == Grade::warning);
}

TEST_CASE("a migration forecast fails for rbd-nbd's cache, unless the volume's attributes switch the cache off") {
  auto inputs = by_rbd_nbd();
  const auto with = [&](const std::string& options) {
    inputs.facts[kVolume] = known({{"mounter", "rbd-nbd"}, {"mapOptions", options}});
    return migration_of(inputs, "cache");
  };
  CHECK(with("nbd:rbd_cache=false") == Grade::ok);
  CHECK(with("nbd:try-netlink,rbd-cache=false") == Grade::ok);
  CHECK(with("nbd:rbd_cache=false,rbd_cache=true") == Grade::failure);
  CHECK(with("") == Grade::failure);
  CHECK(with("krbd:rbd_cache=false") == Grade::failure);
  CHECK(exit_code(forecast_migration(inputs)) == 2);
  inputs.facts.clear();
  CHECK(migration_of(inputs, "cache") == Grade::failure);
}

TEST_CASE(
    "a migration forecast judges rbd-nbd's cache by the running process, and by the attributes only if the process is "
    "unknown") {
  auto inputs = by_rbd_nbd();
  inputs.facts[kVolume] = known({{"mounter", "rbd-nbd"}});
  inputs.nbd[0].cache_off = false;
  CHECK_THAT(named(only(forecast_migration(inputs)), "cache").said, ContainsSubstring("runs with its cache"));
  inputs.facts[kVolume] = known({{"mounter", "rbd-nbd"}, {"mapOptions", "nbd:rbd_cache=false"}});
  CHECK(migration_of(inputs, "cache") == Grade::failure);
  inputs.facts[kVolume] = known({{"mounter", "rbd-nbd"}});
  inputs.nbd[0].cache_off = true;
  CHECK(migration_of(inputs, "cache") == Grade::ok);
  inputs.nbd[0].cache_off = Error{errc::unavailable, "Permission denied"};
  CHECK(migration_of(inputs, "cache") == Grade::failure);
  CHECK_THAT(named(only(forecast_migration(inputs)), "cache").said, ContainsSubstring("not known (Permission denied)"));
}

TEST_CASE("a migration forecast fails for a volume that is not attached here, and warns if its attachment is unknown") {
  auto inputs = by_rbd_nbd();
  CHECK(migration_of(inputs, "attachment") == Grade::ok);
  inputs.facts[kVolume].attached = Error{errc::failed_precondition, "its VolumeAttachment is not attached"};
  CHECK(migration_of(inputs, "attachment") == Grade::failure);
  CHECK_THAT(named(only(forecast_migration(inputs)), "attachment").remedy,
             ContainsSubstring("restart kubelet at once"));
  inputs.facts[kVolume].attached = Error{errc::permission_denied, "may not get it"};
  CHECK(migration_of(inputs, "attachment") == Grade::warning);
}

TEST_CASE(
    "with attachRequired: false, a migration forecast fails because a volume waits for its next stage, with only "
    "rbd-nbd's lock as proof") {
  auto inputs = by_rbd_nbd();
  inputs.facts[kVolume].attached = Error{errc::not_found, "its VolumeAttachment: not found"};
  inputs.attaches = false;
  const auto forecast = forecast_migration(inputs);
  const auto found = named(only(forecast), "attachment");
  CHECK(found.verdict == Grade::failure);
  CHECK_THAT(found.said, ContainsSubstring("attachRequired: false") && ContainsSubstring("lock that rbd-nbd leaves"));
  CHECK_THAT(found.remedy, ContainsSubstring("restart kubelet") && ContainsSubstring("--without-proof"));
  CHECK_THAT(only(forecast).after, ContainsSubstring("nobody until its next stage"));
  CHECK(std::ranges::any_of(forecast.node, [](const Finding& one) { return one.check == "csidriver"; }));
}

TEST_CASE(
    "with attachRequired: false, a migration forecast says that SIGTERM releases rbd-nbd's lock, and fails without "
    "exclusive-lock") {
  auto inputs = by_rbd_nbd();
  inputs.facts[kVolume] = known({{"mounter", "rbd-nbd"}, {"imageFeatures", "layering"}});
  CHECK_THAT(named(only(forecast_migration(inputs)), "cache").remedy, !ContainsSubstring("lock"));
  CHECK(migration_of(inputs, "exclusive-lock") == Grade::warning);
  inputs.attaches = false;
  CHECK_THAT(named(only(forecast_migration(inputs)), "cache").remedy, ContainsSubstring("releases its lock"));
  CHECK(migration_of(inputs, "exclusive-lock") == Grade::failure);
}

TEST_CASE(
    "with attachRequired: false, a migration leaves kernel client volumes alone, and nobody serves corbd's volumes "
    "after a rollback") {
  auto inputs = by_kernel();
  inputs.attaches = false;
  CHECK(only(forecast_migration(inputs)).findings.empty());
  inputs = by_agent();
  inputs.attaches = false;
  CHECK(only(forecast_rollback(inputs)).after == "nobody");
  CHECK_THAT(named(only(forecast_rollback(inputs)), "io").said, ContainsSubstring("attachRequired: false"));
}

TEST_CASE(
    "a rollback forecast fails for a volume without a VolumeAttachment, even if the CSIDriver requires attachments or "
    "cannot be read") {
  auto inputs = by_agent();
  inputs.facts[kVolume].attached = Error{errc::not_found, "its VolumeAttachment: not found"};
  inputs.attaches = GENERATE(result<bool>(true), result<bool>(Error{errc::permission_denied, "no"}));
  CHECK(only(forecast_rollback(inputs)).after == "nobody");
  CHECK(exit_code(forecast_rollback(inputs)) == 2);
}

TEST_CASE("a missing rbd module fails the migration of a volume whose mounter asks the kernel client first") {
  auto inputs = by_rbd_nbd();
  inputs.rbd = Module::absent;
  const auto with = [&](const char* mounter, const char* others) {
    inputs.facts[kVolume] = known({{"mounter", mounter}, {"tryOtherMounters", others}});
    return migration_of(inputs, "client");
  };
  CHECK(with("rbd", "true") == Grade::failure);
  CHECK(with("rbd", "false") == Grade::failure);
  CHECK(only(forecast_migration(inputs)).next_stage == "nobody: corbd refuses its next stage");
  CHECK(with("rbd-nbd", "true") == Grade::ok);
}

TEST_CASE("a CSIDriver that cannot be read is reported, and the forecast assumes that it requires attachments") {
  auto inputs = by_rbd_nbd();
  inputs.facts[kVolume].attached = Error{errc::not_found, "its VolumeAttachment: not found"};
  inputs.attaches = Error{errc::permission_denied, "may not get csidrivers"};
  const auto forecast = forecast_migration(inputs);
  CHECK(forecast.node.back().check == "csidriver");
  CHECK_THAT(forecast.node.back().said, ContainsSubstring("may not get csidrivers"));
  CHECK_THAT(named(only(forecast), "attachment").said, ContainsSubstring("its VolumeAttachment: not found"));
}

TEST_CASE("a migration forecast fails for a missing secret, and warns about a secret that cannot be read") {
  auto inputs = by_kernel();
  inputs.facts[kVolume].secret = Error{errc::not_found, "Secret ceph-csi/rbd: it does not exist"};
  CHECK(migration_of(inputs, "secret") == Grade::failure);
  inputs.facts[kVolume].secret = Error{errc::permission_denied, "may not get it"};
  CHECK(migration_of(inputs, "secret") == Grade::warning);
}

TEST_CASE(
    "both forecasts fail for an agent's volume that is not served, and a migration forecast warns if the agent is "
    "silent") {
  auto inputs = by_agent();
  inputs.volumes = std::map<std::string, doctor::AgentVolume>{{kVolume, {"unproven"}}};
  for (const auto& forecast : {forecast_migration(inputs), forecast_rollback(inputs)}) {
    CHECK(named(only(forecast), "state").verdict == Grade::failure);
    CHECK_THAT(named(only(forecast), "state").remedy, ContainsSubstring("leave corbd here until it is proven"));
    CHECK(only(forecast).now == "corbd: unproven");
  }
  inputs.volumes = std::map<std::string, doctor::AgentVolume>();
  CHECK(migration_of(inputs, "state") == Grade::failure);
  inputs.volumes = Error{errc::unavailable, "no answer"};
  CHECK(migration_of(inputs, "state") == Grade::warning);
}

TEST_CASE(
    "a rollback forecast fails if a device sends no flushes and rbd-nbd would cache writes before the first flush",
    "[rule:1a]") {
  auto inputs = by_agent();
  const auto grade = [&](const std::string& map_options) {
    inputs.facts[kVolume] = known({{"mounter", "rbd-nbd"}, {"mapOptions", map_options}});
    return named(only(forecast_rollback(inputs)), "flush").verdict;
  };
  const std::string off = "nbd:rbd-cache-writethrough-until-flush=false";
  inputs.nbd[0].sends_flushes = false;
  auto& effective = inputs.volumes->at(kVolume).caches_before_flush;
  effective = false;
  SECTION("by the volume's attributes") {
    CHECK(grade("nbd:rbd_cache_writethrough_until_flush=0") == Grade::failure);
    CHECK(grade(off) == Grade::failure);
    CHECK(named(only(forecast_rollback(inputs)), "flush").said.starts_with("/dev/nbd0 sends no flushes"));
  }
  SECTION("by the configuration that the agent sees, whatever the attributes say") {
    effective = true;
    CHECK(grade("") == Grade::failure);
    CHECK(grade("nbd:rbd_cache_writethrough_until_flush=true") == Grade::failure);
  }
  SECTION("by default the cache writes through") { CHECK(grade("") == Grade::ok); }
  SECTION("without a cache") { CHECK(grade(off + ",rbd_cache=false") == Grade::ok); }
  SECTION("a device that sends flushes") {
    inputs.nbd[0].sends_flushes = true;
    CHECK(grade(off) == Grade::ok);
  }
  SECTION("an image that the agent does not have open") {
    effective.reset();
    CHECK(grade("") == Grade::warning);
  }
  SECTION("a device that rbd-nbd serves already") {
    inputs.nbd[0].daemons = {4711};
    CHECK(grade(off) == Grade::failure);
  }
}

TEST_CASE(
    "if the host's processes cannot be seen, a volume's server is unknown and the forecast has no finding about its "
    "I/O") {
  auto inputs = by_rbd_nbd();
  inputs.nbd[0].daemons.clear();
  inputs.daemons = Error{errc::failed_precondition, "this is not the host's PID namespace"};
  const auto volume = only(forecast_migration(inputs));
  CHECK_THAT(volume.now, ContainsSubstring("not known"));
  CHECK(volume.after == "not known");
  CHECK(named(volume, "io").verdict == Grade::ok);
  CHECK(exit_code(forecast_migration(inputs)) == 1);
}

TEST_CASE(
    "both forecasts fail on an unreadable kubelet folder, mounts or records, and a migration forecast on an unreadable "
    "cluster-mapping.json") {
  auto inputs = node();
  inputs.staged.clear();
  SECTION("kubelet's folder") { inputs.kubelet = Error{errc::unavailable, "no"}; }
  SECTION("mounts") { inputs.mounts = Error{errc::unavailable, "no"}; }
  SECTION("records") { inputs.records.complete = Error{errc::unavailable, "no"}; }
  CHECK(exit_code(forecast_rollback(inputs)) == 2);
  CHECK(exit_code(forecast_migration(inputs)) == 2);
  inputs = by_kernel();
  inputs.mappings = Error{errc::invalid_argument, "no"};
  CHECK(exit_code(forecast_migration(inputs)) == 2);
}

TEST_CASE("both forecasts warn if nothing is staged but an RBD device or another driver's folder is there") {
  auto inputs = node();
  inputs.staged.clear();
  std::string check = "devices";
  SECTION("an nbd device") { inputs.nbd = {by_nbd(0, "v", {})}; }
  SECTION("a device of the kernel client") { inputs.krbd = {by_krbd(0, "a")}; }
  SECTION("another driver's folder") {
    inputs.other_drivers = {"rook-ceph.rbd.csi.ceph.com"};
    check = "driver";
  }
  for (const auto& forecast : {forecast_migration(inputs), forecast_rollback(inputs)}) {
    CHECK(exit_code(forecast) == 1);
    CHECK(forecast.node.back().check == check);
    CHECK(forecast.node.back().verdict == Grade::warning);
  }
}

TEST_CASE("a migration forecast names who serves a volume from its next stage on, and the setting that decides it") {
  struct StagedVolume {
    std::map<std::string, std::string> attributes;
    const char* rules;
    cephcsi::Mounter unnamed;
    std::string says;
  };
  const auto [attributes, rules, unnamed, says] = GENERATE(values<StagedVolume>({
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
  auto inputs = by_kernel();
  inputs.facts[kVolume] = known(attributes);
  inputs.mounters = cephcsi::parse_mounter_rules(rules);
  inputs.options.default_mounter = unnamed;
  CHECK_THAT(only(forecast_migration(inputs)).next_stage, ContainsSubstring(says));
}

TEST_CASE("a migration forecast fails for a device that corbd would not adopt") {
  SECTION("a device without an identifier") {
    auto inputs = by_rbd_nbd();
    inputs.nbd[0].seen.backend = "";
    CHECK(migration_of(inputs, "identifier") == Grade::failure);
    CHECK_THAT(only(forecast_migration(inputs)).after, ContainsSubstring("refuses"));
  }
  SECTION("a device with another volume's identifier") {
    auto inputs = by_rbd_nbd();
    inputs.nbd[0].seen.backend = "another";
    CHECK(migration_of(inputs, "identifier") == Grade::failure);
  }
  SECTION("two devices with the volume's identifier") {
    auto inputs = by_rbd_nbd();
    inputs.nbd.push_back(by_nbd(1, kVolume, {1}));
    CHECK(migration_of(inputs, "device") == Grade::failure);
  }
  SECTION("a device whose volume has no image-meta.json") {
    auto inputs = by_rbd_nbd();
    inputs.staged[0].stash = std::optional<cephcsi::Stash>();
    CHECK(migration_of(inputs, "device") == Grade::failure);
    CHECK_THAT(named(only(forecast_migration(inputs)), "device").said, ContainsSubstring("left no image-meta.json"));
  }
  SECTION("another device than the one that image-meta.json names") {
    auto inputs = by_rbd_nbd();
    (*inputs.staged[0].stash)->device = "/dev/nbd7";
    CHECK(migration_of(inputs, "device") == Grade::failure);
  }
  SECTION("a device whose image-meta.json says that the other client mapped it") {
    auto inputs = by_rbd_nbd();
    (*inputs.staged[0].stash)->nbd = false;
    CHECK(migration_of(inputs, "device") == Grade::failure);
    inputs = by_kernel();
    (*inputs.staged[0].stash)->nbd = true;
    CHECK(migration_of(inputs, "device") == Grade::failure);
  }
  SECTION("a device of rbd-nbd whose image-meta.json names another image than the static volume's attributes") {
    auto inputs = by_rbd_nbd();
    auto& attributes = inputs.facts[kVolume].volume->attributes;
    attributes.merge(
        std::map<std::string, std::string>{{"staticVolume", "true"}, {"clusterID", "prod"}, {"pool", "rbd"}});
    attributes["imageFeatures"] = "layering";
    (*inputs.staged[0].stash)->image = kVolume;
    CHECK(migration_of(inputs, "device") == Grade::ok);
    attributes["pool"] = "other";
    CHECK(migration_of(inputs, "device") == Grade::failure);
  }
  SECTION("two devices of the kernel client for one image, or a device of another image") {
    auto inputs = by_kernel();
    inputs.krbd.push_back(by_krbd(1, "csi-vol-1"));
    CHECK(migration_of(inputs, "device") == Grade::failure);
    inputs = by_kernel();
    inputs.krbd[0].name.image = "csi-vol-2";
    CHECK(migration_of(inputs, "device") == Grade::failure);
  }
}

TEST_CASE("a migration forecast fails for the second of two volumes with one image of the same cluster") {
  auto inputs = by_rbd_nbd();
  const auto add = [&](const std::string& volume) {
    inputs.staged.resize(1, StagedAt());
    inputs.staged.push_back(inputs.staged[0]);
    auto& at = inputs.staged[1];
    at.volume_id = volume;
    at.path += "2";
    at.device = "nbd1";
    (*at.stash)->device = "/dev/nbd1";
    inputs.nbd = {inputs.nbd[0], by_nbd(1, volume, {4712})};
    return forecast_migration(inputs);
  };
  std::string other = kVolume;
  other.back() = '2';
  auto both = add(other);
  CHECK(named(both.volumes.at(0), "device").verdict == Grade::ok);
  CHECK_THAT(named(both.volumes.at(1), "device").said,
             ContainsSubstring("volume " + kVolume + " of this node has the image"));
  CHECK(both.volumes.at(1).after == "nobody: corbd refuses it");
  // corbd has it already.
  inputs.records.volumes = {other};
  CHECK(named(forecast_migration(inputs).volumes.at(0), "device").verdict == Grade::failure);
  inputs.records.volumes.clear();
  other.replace(other.find("prod"), 4, "test");
  both = add(other);
  CHECK(named(both.volumes.at(1), "device").verdict == Grade::ok);
}

TEST_CASE("a migration forecast fails for an unreadable image-meta.json, and warns about one of a later version") {
  auto inputs = by_kernel();
  inputs.staged[0].stash_version = 4;
  CHECK(migration_of(inputs, "image-meta.json") == Grade::warning);
  inputs.staged[0].stash = Error{errc::state_corrupt, "not a JSON object"};
  CHECK(migration_of(inputs, "image-meta.json") == Grade::failure);
}

TEST_CASE("a migration forecast fails for a volume whose I/O waits already, and counts the waiting requests") {
  auto inputs = by_rbd_nbd();
  inputs.nbd[0].daemons.clear();
  inputs.nbd[0].seen.waiting = 3;
  CHECK(migration_of(inputs, "io") == Grade::failure);
  CHECK(only(forecast_migration(inputs)).now == "nobody: 3 requests wait");
}

TEST_CASE("a migration forecast fails for attributes that a stage refuses, and names them") {
  struct StagedVolume {
    std::map<std::string, std::string> attributes;
    std::string says;
  };
  const auto [attributes, says] = GENERATE(values<StagedVolume>({
      {{{"mounter", "fuse"}}, "fuse"},
      {{{"encrypted", "true"}, {"encryptionType", "disk"}}, "encryptionType"},
      {{{"mounter", "rbd-nbd"}, {"mapOptions", "nbd:rbd_cache=true"}}, "mapOptions"},
  }));
  auto inputs = by_kernel();
  inputs.facts[kVolume] = known(attributes);
  const auto finding = named(only(forecast_migration(inputs)), "attributes");
  CHECK(finding.verdict == Grade::failure);
  CHECK_THAT(finding.said, ContainsSubstring(says));
}

TEST_CASE("a migration forecast of a volume with encrypted files needs no stash that is marked as encrypted") {
  auto inputs = by_kernel();
  inputs.facts[kVolume] = known({{"encrypted", "true"}, {"encryptionType", "file"}});
  CHECK(forecast_migration(inputs).volumes[0].findings.empty());
}

TEST_CASE(
    "a migration of an encrypted volume needs a KMS that corbd knows, a passphrase, and a stash marked as encrypted") {
  auto inputs = by_kernel();
  (*inputs.staged[0].stash)->encrypted = true;
  inputs.facts[kVolume] = known({{"encrypted", "true"}});
  CHECK(forecast_migration(inputs).volumes[0].findings.empty());
  inputs.facts[kVolume].secret->passphrase = false;
  CHECK(migration_of(inputs, "secret") == Grade::failure);
  inputs.facts[kVolume] = known({{"encrypted", "true"}, {"encryptionKMSID", "v"}});
  inputs.kms_config = R"({"v":{"encryptionKMSType":"vault"}})";
  CHECK(migration_of(inputs, "encryption") == Grade::failure);
  inputs.kms_config = R"({"v":{"encryptionKMSType":"metadata"}})";
  CHECK(migration_of(inputs, "encryption") == Grade::ok);
  inputs.facts[kVolume].secret->passphrase = false;
  CHECK(migration_of(inputs, "secret") == Grade::failure);
  inputs.kms_config = R"({"v":{"encryptionKMSType":"vault","vaultAddress":"https://vault:8200"}})";
  CHECK(migration_of(inputs, "encryption") == Grade::ok);
  CHECK(migration_of(inputs, "secret") == Grade::ok);
  (*inputs.staged[0].stash)->encrypted = false;
  CHECK_THAT(named(only(forecast_migration(inputs)), "device").said,
             ContainsSubstring("does not say that it is encrypted"));
}

TEST_CASE("a migration needs monitors in config.json for the volume's cluster or a cluster mapped to it") {
  auto inputs = by_kernel();
  inputs.clusters = std::vector<rbd::ClusterEntry>{{"other", {"m1"}, "", {}}, {"prod", {}, "", {}}};
  CHECK(migration_of(inputs, "cluster") == Grade::failure);
  inputs.mappings = std::vector<rbd::ClusterMapping>{{{{"prod", "other"}}, {}}};
  CHECK(migration_of(inputs, "cluster") == Grade::ok);
}

TEST_CASE("a migration needs a secret whose key is of a type that the next stage's client knows") {
  auto inputs = by_kernel();
  inputs.options.default_mounter = cephcsi::Mounter::krbd;
  inputs.facts[kVolume].volume->node_stage_secret.reset();
  CHECK(migration_of(inputs, "secret") == Grade::failure);
  inputs = by_kernel();
  inputs.facts[kVolume].secret->key = false;
  CHECK(migration_of(inputs, "secret") == Grade::failure);
  inputs = by_kernel();
  inputs.options.default_mounter = cephcsi::Mounter::krbd;
  inputs.facts[kVolume].secret->key_type = KeyType::aes256k;
  CHECK_THAT(named(only(forecast_migration(inputs)), "secret").said, ContainsSubstring("aes256k"));
  inputs.kernel = "7.0.1";
  CHECK(migration_of(inputs, "secret") == Grade::ok);
  inputs.kernel = "6.12.1";
  inputs.options.default_mounter = cephcsi::Mounter::nbd;
  CHECK(migration_of(inputs, "secret") == Grade::ok);
  inputs.facts[kVolume].volume->attributes = {{"mounter", "rbd"}, {"tryOtherMounters", "true"}};
  CHECK(migration_of(inputs, "secret") == Grade::ok);
  CHECK_THAT(only(forecast_migration(inputs)).next_stage, ContainsSubstring("corbd, because the kernel"));
}

TEST_CASE("a migration forecast fails without the nbd module, an rbd module that is needed, or a valid mounters.json") {
  auto inputs = by_kernel();
  inputs.nbd_there = false;
  CHECK(exit_code(forecast_migration(inputs)) == 2);
  inputs = by_kernel();
  inputs.options.default_mounter = cephcsi::Mounter::krbd;
  inputs.rbd = Module::absent;
  CHECK(migration_of(inputs, "client") == Grade::failure);
  inputs = by_kernel();
  inputs.mounters = Error{errc::invalid_argument, "mounters.json: rule 1"};
  CHECK(exit_code(forecast_migration(inputs)) == 2);
  // ceph-csi does not read mounters.json.
  inputs.agent = true;
  CHECK(exit_code(forecast_rollback(inputs)) == 0);
}

TEST_CASE("a migration forecast warns about facts that are unknown because the API server does not give them") {
  auto inputs = by_kernel();
  inputs.api = Error{errc::failed_precondition, "this is not a pod"};
  inputs.facts.clear();
  const auto forecast = forecast_migration(inputs);
  CHECK(exit_code(forecast) == 1);
  CHECK(only(forecast).next_stage == "not known");
  CHECK_THAT(forecast.node.back().said, ContainsSubstring("this is not a pod"));
  inputs.api = {};
  inputs.facts[kVolume].volume = Error{errc::not_found, "PersistentVolume pvc-1: it does not exist"};
  CHECK(migration_of(inputs, "attributes") == Grade::warning);
}

TEST_CASE("a migration forecast warns about a proxy that ceph-csi asks its KMSs through, where there is a KMS") {
  auto inputs = by_kernel();
  inputs.proxies = {"HTTPS_PROXY"};
  const auto warned = [&] {
    const auto forecast = forecast_migration(inputs);
    return std::ranges::any_of(forecast.node, [](const Finding& one) {
      return one.check == "proxy" && one.verdict == Grade::warning && one.said.find("HTTPS_PROXY") != std::string::npos;
    });
  };
  CHECK_FALSE(warned());
  inputs.kms_config = std::string("{}");
  CHECK(warned());
  inputs.proxies.clear();
  CHECK_FALSE(warned());
}

TEST_CASE("both forecasts are OK for a node with nothing staged, even without API server and processes") {
  auto inputs = node();
  inputs.staged.clear();
  inputs.facts.clear();
  inputs.api = inputs.daemons = Error{errc::unavailable, "no"};
  CHECK(exit_code(forecast_migration(inputs)) == 0);
  CHECK(exit_code(forecast_rollback(inputs)) == 0);
}

TEST_CASE("a migration forecast is OK for a volume that corbd serves already") {
  const auto forecast = forecast_migration(by_agent());
  CHECK(exit_code(forecast) == 0);
  CHECK(only(forecast).now == "corbd");
}

TEST_CASE("a migration forecast is OK for a staging folder without a device") {
  auto inputs = by_kernel();
  inputs.staged[0].device = "";
  inputs.staged[0].mounted = false;
  inputs.krbd.clear();
  CHECK(exit_code(forecast_migration(inputs)) == 0);
  CHECK_THAT(only(forecast_migration(inputs)).now, ContainsSubstring("no device"));
  CHECK(exit_code(forecast_rollback(inputs)) == 1);  // no agent answers
}

TEST_CASE(
    "a migration forecast fails for a mount of neither an nbd nor an rbd device, because corbd's stage refuses it") {
  auto inputs = by_kernel();
  inputs.staged[0].device = "";
  inputs.krbd.clear();
  CHECK_THAT(named(only(forecast_migration(inputs)), "device").said, ContainsSubstring("something else is mounted"));
  CHECK(only(forecast_migration(inputs)).after == "nobody: corbd refuses it");
}

TEST_CASE(
    "a migration forecast lists what only corbd's stage will ask Ceph, with the commands that ask it, and is no worse "
    "for it") {
  using Questions = std::vector<std::string>;
  const std::string
      journal = "which image the volume's journal names",
      users =
          "who has the image locked or open (`rbd lock ls rbd/csi-vol-1; rbd status rbd/csi-vol-1`), and its features "
          "(`rbd info rbd/csi-vol-1`; dirty-cache: a persistent cache has its newest writes)";
  CHECK(only(forecast_migration(by_kernel())).not_known == Questions{journal});
  CHECK(exit_code(forecast_migration(by_kernel())) == 0);
  CHECK(only(forecast_migration(by_rbd_nbd())).not_known == Questions{journal, users});
  SECTION("a static volume's image is known, because its attributes name the image") {
    auto inputs = by_kernel();
    auto& attributes = inputs.facts[kVolume].volume->attributes;
    attributes = {{"staticVolume", "true"}, {"clusterID", "prod"}, {"pool", "rbd"}, {"imageFeatures", "layering"}};
    (*inputs.staged[0].stash)->image = inputs.krbd[0].name.image = kVolume;
    CHECK(only(forecast_migration(inputs)).not_known.empty());
    CHECK(migration_of(inputs, "device") == Grade::ok);
  }
  SECTION("the users of a ReadOnlyMany volume's image are not asked for") {
    auto inputs = by_rbd_nbd();
    inputs.facts[kVolume].volume->access_modes = {"ReadOnlyMany"};
    CHECK(only(forecast_migration(inputs)).not_known == Questions{journal});
  }
  SECTION("nothing will be asked about a volume that corbd refuses or serves already") {
    auto inputs = by_rbd_nbd();
    (*inputs.staged[0].stash)->device = "/dev/nbd7";
    CHECK(only(forecast_migration(inputs)).not_known.empty());
    CHECK(only(forecast_migration(by_agent())).not_known.empty());
  }
}

TEST_CASE("an empty folder of kubelet is a staged volume only if a device carries its volume ID") {
  auto inputs = by_rbd_nbd();
  auto& at = inputs.staged[0];
  at.stash = std::optional<cephcsi::Stash>();
  at.mounted = false;
  at.device = "";
  CHECK(forecast_migration(inputs).volumes.size() == 1);
  inputs.nbd.clear();
  CHECK(forecast_migration(inputs).volumes.empty());
  CHECK(forecast_rollback(inputs).volumes.empty());
}

TEST_CASE("a rollback forecast warns that the I/O of an rbd-nbd filesystem waits until ceph-csi heals it") {
  const auto forecast = forecast_rollback(by_agent());
  CHECK(exit_code(forecast) == 1);
  const auto volume = only(forecast);
  CHECK(volume.now == "corbd");
  CHECK_THAT(volume.after, ContainsSubstring("rbd-nbd"));
  CHECK_THAT(named(volume, "io").said, ContainsSubstring("30 s") && ContainsSubstring("24 h"));
}

TEST_CASE(
    "a rollback forecast fails for a volume that ceph-csi does not heal, whose unstage would succeed but leave the "
    "device") {
  auto inputs = by_agent();
  SECTION("raw block, by its folder or its PersistentVolume") {
    const bool by_folder = GENERATE(true, false);
    inputs.staged[0].block = by_folder;
    inputs.facts[kVolume].volume->mode = by_folder ? "" : "Block";
  }
  SECTION("a volume whose attributes do not say rbd-nbd") {
    inputs.facts[kVolume] = GENERATE(known({}), known({{"mounter", "rbd"}}));
  }
  SECTION("a volume whose attributes are not known") { inputs.facts.clear(); }
  SECTION("an image-meta.json that is missing, damaged, or names no device, another device or another client") {
    const int how = GENERATE(0, 1, 2, 3, 4);
    auto& stash = inputs.staged[0].stash;
    if (how == 0) stash = std::optional<cephcsi::Stash>();
    if (how == 1) stash = Error{errc::state_corrupt, "not a JSON object"};
    if (how == 2) (*stash)->device = "";
    if (how == 3) (*stash)->device = "/dev/nbd9";
    if (how == 4) (*stash)->nbd = false;
  }
  const auto forecast = forecast_rollback(inputs);
  CHECK(exit_code(forecast) == 2);
  CHECK(only(forecast).after == "nobody");
  CHECK_THAT(named(only(forecast), "io").said, ContainsSubstring("says that it is done, and leaves /dev/nbd0"));
  CHECK_THAT(named(only(forecast), "io").remedy, ContainsSubstring("corbd drain"));
}

TEST_CASE("a rollback forecast says that ceph-csi's unstage of an encrypted volume would always fail") {
  auto inputs = by_agent();
  (*inputs.staged[0].stash)->encrypted = true;
  inputs.facts[kVolume] = known({});
  CHECK_THAT(named(only(forecast_rollback(inputs)), "io").said, ContainsSubstring("fails for ever"));
}

TEST_CASE("a rollback forecast gives the time that I/O waits by the volume's own reattach-timeout") {
  auto inputs = by_agent();
  inputs.facts[kVolume] = known({{"mounter", "rbd-nbd"}, {"mapOptions", "nbd:reattach-timeout=300"}});
  CHECK_THAT(named(only(forecast_rollback(inputs)), "io").said, ContainsSubstring("I/O waits for 300 s"));
}

TEST_CASE(
    "a rollback forecast is OK for a kernel client's volume, unless its image-meta.json is missing or names another "
    "image") {
  auto inputs = by_kernel();
  inputs.agent = true;
  CHECK(exit_code(forecast_rollback(inputs)) == 0);
  CHECK_THAT(only(forecast_rollback(inputs)).after, ContainsSubstring("without a break"));
  (*inputs.staged[0].stash)->image = "csi-vol-9";
  CHECK(exit_code(forecast_rollback(inputs)) == 2);
  CHECK_THAT(named(only(forecast_rollback(inputs)), "unstage").said, ContainsSubstring("says that it is done"));
  inputs.staged[0].stash = std::optional<cephcsi::Stash>();
  CHECK(exit_code(forecast_rollback(inputs)) == 2);
}

TEST_CASE("a rollback forecast fails for a volume whose I/O waits now, and for one that no kubelet folder names") {
  auto inputs = by_agent();
  inputs.records.volumes.clear();
  inputs.volumes = std::map<std::string, doctor::AgentVolume>();
  CHECK(named(only(forecast_rollback(inputs)), "io").verdict == Grade::failure);
  inputs = by_agent();
  inputs.staged.clear();
  const auto forecast = forecast_rollback(inputs);
  CHECK(exit_code(forecast) == 2);
  CHECK(forecast.node.back().check == "/dev/nbd0");
}

TEST_CASE("a rollback forecast fails for a volume with a lost cache, whose flushes ceph-csi would let succeed again") {
  auto inputs = by_agent();
  CHECK(named(only(forecast_rollback(inputs)), "lost-cache").verdict == Grade::ok);
  inputs.volumes->at(kVolume).cache_lost = true;
  const auto forecast = forecast_rollback(inputs);
  CHECK(exit_code(forecast) == 2);
  CHECK(named(only(forecast), "lost-cache").verdict == Grade::failure);
  CHECK_THAT(named(only(forecast), "lost-cache").remedy,
             ContainsSubstring("corbd heal " + kVolume + " --loss-accepted"));
}

TEST_CASE("a rollback forecast fails for a volume whose device takes WRITE_ZEROES, whoever serves it now",
          "[rule:21]") {
  auto inputs = by_agent();
  if (GENERATE(false, true)) {
    inputs = by_rbd_nbd();
    inputs.agent = true;
    inputs.records.volumes = {kVolume};
  }
  inputs.zeroing_numbers = {7};
  CHECK(named(only(forecast_rollback(inputs)), "write-zeroes").verdict == Grade::ok);
  inputs.zeroing_numbers = {0, 7};
  const auto forecast = forecast_rollback(inputs);
  CHECK(exit_code(forecast) == 2);
  const auto found = named(only(forecast), "write-zeroes");
  CHECK(found.verdict == Grade::failure);
  CHECK_THAT(found.said, ContainsSubstring("/dev/nbd0"));
  CHECK_THAT(found.remedy, ContainsSubstring("corbd drain") && ContainsSubstring("modprobe -r nbd"));
}

TEST_CASE("a rollback forecast fails for free numbers that take WRITE_ZEROES, also on an empty node", "[rule:21]") {
  auto inputs = by_agent();
  inputs.staged.clear();
  inputs.records.volumes.clear();
  inputs.nbd.clear();
  CHECK(exit_code(forecast_rollback(inputs)) == 0);
  inputs.zeroing_numbers = {1, 2};
  const auto forecast = forecast_rollback(inputs);
  CHECK(exit_code(forecast) == 2);
  REQUIRE_FALSE(forecast.node.empty());
  CHECK(forecast.node.back().check == "write-zeroes");
  CHECK_THAT(forecast.node.back().said, ContainsSubstring("/dev/nbd1, /dev/nbd2"));
  CHECK_THAT(forecast.node.back().remedy, ContainsSubstring("modprobe -r nbd"));
}

TEST_CASE("a rollback forecast is OK for a volume that rbd-nbd still serves") {
  auto inputs = by_rbd_nbd();
  inputs.agent = true;
  inputs.records.volumes = {kVolume};
  const auto forecast = forecast_rollback(inputs);
  CHECK(exit_code(forecast) == 0);
  CHECK(only(forecast).now == "rbd-nbd, process 4711");
  CHECK(only(forecast).after == "rbd-nbd, process 4711, which ceph-csi takes for its own");
}

TEST_CASE("every finding that is not OK has a remedy") {
  auto inputs = by_rbd_nbd();
  inputs.nbd_there = false;
  inputs.api = inputs.daemons = Error{errc::unavailable, "no"};
  inputs.clusters = Error{errc::not_found, "no"};
  inputs.mounters = Error{errc::invalid_argument, "no"};
  inputs.nbd[0].seen.backend = "";
  inputs.facts[kVolume] = known({{"mounter", "fuse"}});
  for (const auto& forecast : {forecast_migration(inputs), forecast_rollback(inputs)}) {
    for (const auto& finding : forecast.node)
      if (finding.verdict != Grade::ok) CHECK_FALSE(finding.remedy.empty());
    for (const auto& finding : forecast.volumes[0].findings) CHECK_FALSE(finding.remedy.empty());
  }
}

TEST_CASE("a stage secret is read only for which entries it has and the type of its key") {
  const auto key = [](char type) { return Secret(to_base64(std::string{type, '\0'} + std::string(26, 'x'))); };
  const std::map<std::string, Secret> plain{{"userID", Secret(std::string("kubernetes"))}, {"userKey", key(1)}};
  auto read = read_stage_secret(plain);
  CHECK((read.user && read.key && !read.passphrase && read.key_type == KeyType::aes));
  read = read_stage_secret({{"key", key(2)}, {"encryptionPassphrase", Secret(std::string("p"))}});
  CHECK((read.user && read.key && read.passphrase && read.key_type == KeyType::aes256k));
  read = read_stage_secret({{"userKey", Secret(std::string("no key"))}});
  CHECK((!read.user && read.key && read.key_type == KeyType::unknown));
}
