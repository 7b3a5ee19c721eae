// Forecasts this agent's treatment of the volumes that ceph-csi has staged. Pure.
#include <algorithm>
#include <iterator>

#include "corbd/kms/kms.hpp"
#include "corbd/krbd/sysfs.hpp"
#include "corbd/plan/planner.hpp"
#include "staged_volume.hpp"

namespace corbd::migration {
namespace {

constexpr std::int64_t kStashVersion = 3;  // version of the ceph-csi that was read (docs/sources.md#stash)
constexpr const char* kMoveAway =
    "move its pods to another node first (`kubectl drain NODE`), so that ceph-csi unstages it";
constexpr const char* kRefused = "nobody: corbd refuses its next stage";
constexpr const char* kForLife =
    "a PersistentVolume keeps its attributes for life: leave ceph-csi on the nodes that use it, or copy its data to a "
    "volume of another StorageClass";

void judge_stash(const StagedVolume& of, VolumeForecast& into) {
  if (!of.at.stash) {
    add_finding(into, Grade::failure, "image-meta.json", of.at.stash.error().text,
                std::string("neither ceph-csi nor corbd can unstage it so: ") + kMoveAway + ", and remove the file");
    return;
  }
  if (of.at.stash_version > kStashVersion)
    add_finding(into, Grade::warning, "image-meta.json",
                cephcsi::stash_file(of.at.path) + " has version " + std::to_string(of.at.stash_version) +
                    ", and corbd reads it as version " + std::to_string(kStashVersion),
                "try one such volume on a node that was drained; report what goes wrong");
}

void judge_device(const StagedVolume& of, VolumeForecast& into) {
  const std::string backend = of.nbd == nullptr ? "" : of.nbd->seen.backend;
  if (of.device.starts_with("/dev/nbd") && (backend.empty() || backend != of.at.volume_id))
    return add_finding(
        into, Grade::failure, "identifier",
        of.device + (backend.empty() ? " carries no identifier, so corbd cannot know it for this volume's: its I/O "
                                       "fails when rbd-nbd's reattach-timeout (300 s) is over"
                                     : " carries the identifier " + backend + ", not this volume's"),
        kMoveAway);
  // An unreadable stash has a finding of its own.
  if (!of.at.stash) return;
  auto stage = forecast_stage(of);
  into.not_known = std::move(stage.not_known);
  if (stage.adopted) return;
  const auto* mapped = mapped_device(of);
  add_finding(into, Grade::failure, "device",
              "corbd refuses " + (of.device.empty() ? "its next stage" : of.device) +
                  (mapped == nullptr ? "" : ", which has the image " + mapped->name.pool + "/" + mapped->name.image) +
                  ": " + stage.adopted.error().text,
              kMoveAway);
}

/// Whether killing rbd-nbd loses writes. librbd's cache acknowledges a write before it is stored, and is on by default.
/// A pod that ends kills its rbd-nbd.
bool has_cache(const StagedVolume& of) {
  if (of.nbd != nullptr && of.nbd->cache_off) return !*of.nbd->cache_off;
  return rbd_nbd_option(of, "rbd_cache") != "false";
}

void judge_cache(const StagedVolume& of, VolumeForecast& into) {
  const bool maybe = of.served_by == ServedBy::nobody && !of.inputs.daemons;
  if ((of.served_by != ServedBy::other && !maybe) || !has_cache(of)) return;
  const std::string why =
      of.nbd == nullptr ? "its attributes do not switch rbd-nbd's cache off (mapOptions rbd_cache=false)"
      : of.nbd->cache_off
          ? "its rbd-nbd runs with its cache (mapOptions rbd_cache=false switches it off at a stage)"
          : "its attributes do not switch rbd-nbd's cache off (mapOptions rbd_cache=false), and whether "
            "the ceph.conf of ceph-csi's pod does is not known (" +
                of.nbd->cache_off.error().text + ")";
  add_finding(
      into, Grade::failure, "cache",
      why +
          ": when rbd-nbd is killed with its pod, acknowledged writes that were not flushed may be lost. Every fsync "
          "then fails until the volume's pods have ended",
      std::string("move its pods away first (`kubectl drain NODE`), or end each rbd-nbd with SIGTERM right before its "
                  "pod: `pkill -TERM -x rbd-nbd`, and wait until it has ended") +
          (attaches_nothing(of.inputs) || !of.inputs.attaches
               ? ". That releases its lock, so corbd then serves it only on an operator override: "
                 "`corbd heal ID --without-proof`"
               : ""));
}

/// Judges rbd-nbd's lock, as far as it can be known before its end.
void judge_unattached(const StagedVolume& of, VolumeForecast& into) {
  into.after = "nobody until its next stage, then corbd";
  add_finding(
      into, Grade::failure, "attachment",
      "the CSIDriver " + of.inputs.options.driver +
          " says attachRequired: false, so no VolumeAttachment shows that it stayed here. corbd serves it at its next "
          "stage, on the proof of the lock that rbd-nbd leaves when it is killed",
      "restart kubelet at once when the pod was replaced: its stage brings what corbd needs. Where rbd-nbd left no "
      "lock, the volume stays unproven until you say that no other node used it: `corbd heal ID --without-proof`. Or "
      "move its pods away first");
}

/// Judges the attachment: corbd serves the volume in place only if the API server says that it stayed here.
void judge_attachment(const StagedVolume& of, VolumeForecast& into) {
  if (!of.inputs.api || of.facts == nullptr || !of.device.starts_with("/dev/nbd") || of.facts->attached) return;
  if (attaches_nothing(of.inputs)) return judge_unattached(of, into);
  const auto& error = of.facts->attached.error();
  const bool refused = error.code == errc::not_found || error.code == errc::failed_precondition;
  add_finding(
      into, refused ? Grade::failure : Grade::warning, "attachment",
      std::string(refused ? "corbd does not serve it before its next stage: "
                          : "whether corbd serves it before its next stage is not known: ") +
          error.text,
      "restart kubelet at once when the pod was replaced: its stage brings what corbd needs. Or move its pods away "
      "first");
}

void judge_io(const StagedVolume& of, VolumeForecast& into) {
  judge_cache(of, into);
  if (of.served_by == ServedBy::nobody && of.inputs.daemons)
    add_finding(
        into, Grade::failure, "io", "nobody serves " + of.device + ": its I/O waits now",
        "have ceph-csi heal it (restart its pod on this node), or go on at once: corbd serves it when it is proven "
        "that no other node wrote");
  if (of.served_by == ServedBy::other)
    add_finding(into, Grade::warning, "io",
                "rbd-nbd ends with ceph-csi's pod: I/O waits until corbd serves the device, about 30 s after that",
                of.inputs.api
                    ? "replace the pod within rbd-nbd's reattach-timeout (300 s), or move its pods away first"
                    : "restart kubelet right after the pod was replaced, within rbd-nbd's reattach-timeout (300 s): "
                      "its stage brings the key. Or move its pods away first");
}

bool has_monitors(const ForecastInputs& inputs, const std::string& cluster_id) {
  return std::ranges::any_of(*inputs.clusters,
                             [&](const auto& one) { return one.cluster_id == cluster_id && !one.monitors.empty(); });
}

void judge_cluster(const StagedVolume& of, VolumeForecast& into) {
  const std::string cluster = cluster_of(of);
  if (!of.inputs.clusters || cluster.empty()) return;
  if (!of.inputs.mappings) return;
  const auto others = rbd::mapped_clusters(*of.inputs.mappings, cluster);
  if (has_monitors(of.inputs, cluster) ||
      std::ranges::any_of(others, [&](const auto& one) { return has_monitors(of.inputs, one); }))
    return;
  add_finding(into, Grade::failure, "cluster", "config.json has no monitors of its cluster \"" + cluster + "\"",
              "add the cluster to ceph-csi's ConfigMap");
}

/// Whether the key has a type that the kernel's client may not know.
bool has_new_key(const StagedVolume& of) {
  return of.secret != nullptr && of.secret->key_type == KeyType::aes256k && !krbd::knows_aes256k(of.inputs.kernel);
}

/// Returns nothing for a volume that is not encrypted. The default KMS needs no config.
std::optional<result<kms::Terms>> kms_terms(const StagedVolume& of, const cephcsi::Parameters& read) {
  if (read.kms_id.empty()) return std::nullopt;
  if (read.kms_id == kms::kDefaultKms) return kms::Terms{kms::Kind::shared, true};
  if (!of.inputs.kms_config) return of.inputs.kms_config.error();
  return kms::terms_of(*of.inputs.kms_config, read.kms_id);
}

/// Whether its KMS needs a passphrase. An unknown KMS has a finding of its own.
bool needs_passphrase(const StagedVolume& of, const cephcsi::Parameters& read) {
  const auto terms = kms_terms(of, read);
  return terms && *terms && (*terms)->needs_passphrase;
}

void judge_secret(const StagedVolume& of, VolumeForecast& into, const cephcsi::Parameters* read) {
  if (of.object != nullptr && !of.object->node_stage_secret)
    add_finding(into, Grade::failure, "secret",
                "its PersistentVolume names no nodeStageSecretRef, so a stage brings no key", kForLife);
  if (of.object != nullptr && of.object->node_stage_secret && of.secret == nullptr) {
    const auto& error = of.facts->secret.error();
    add_finding(into, error.code == errc::not_found ? Grade::failure : Grade::warning, "secret",
                "its node-stage secret is not known: " + error.text,
                error.code == errc::not_found ? "make the Secret, or no stage of it succeeds"
                                              : "give this pod's service account the right to get it, and ask again");
  }
  if (of.secret == nullptr) return;
  const auto lacks = [&](bool there, const char* key) {
    if (!there)
      add_finding(into, Grade::failure, "secret", std::string("its node-stage secret has no ") + key,
                  "add it to the Secret");
  };
  lacks(of.secret->user, "userID");
  lacks(of.secret->key, "userKey");
  if (read != nullptr && needs_passphrase(of, *read)) lacks(of.secret->passphrase, "encryptionPassphrase");
  if (of.secret->key && of.secret->key_type == KeyType::unknown)
    add_finding(into, Grade::failure, "secret",
                "userKey of its node-stage secret is not a Ceph key of type aes or aes256k", "correct the Secret");
  if (has_new_key(of) && read != nullptr && read->mounter == cephcsi::Mounter::krbd)
    add_finding(
        into, Grade::failure, "secret",
        "its key is of the type aes256k, which the kernel's client knows from Linux 7.0 on, and the kernel is to "
        "serve it",
        "have corbd serve it: tryOtherMounters in the StorageClass of new volumes, and a rule in mounters.json with "
        "the "
        "mounter rbd-nbd for this one");
}

void judge_encryption(const StagedVolume& of, VolumeForecast& into, const cephcsi::Parameters& read) {
  const auto terms = kms_terms(of, read);
  if (terms && !*terms) add_finding(into, Grade::failure, "encryption", terms->error().text, kForLife);
}

/// Inputs that decide which client serves it from its next stage on.
struct Choice {
  cephcsi::Mounters mounters;
  std::string by;
};
Choice choose(const StagedVolume& of) {
  Choice made{{of.inputs.options.default_mounter, std::nullopt}, "--default-mounter"};
  if (!attribute(of, "mounter").empty()) made.by = "its attribute mounter";
  if (!of.inputs.mounters) return made;
  auto about = cephcsi::mounter_case(of.at.volume_id, of.object->attributes);
  about.storage_class = of.object->storage_class;
  made.mounters.instead = cephcsi::choose_mounter(*of.inputs.mounters, about).mounter;
  if (made.mounters.instead) made.by = "mounters.json";
  return made;
}

/// Names the client. Whether the kernel knows the image's features is unknown here.
std::string client(const StagedVolume& of, cephcsi::Mounter mounter) {
  const auto key = of.secret == nullptr ? KeyType::unknown : of.secret->key_type;
  const auto kernel = of.inputs.rbd == Module::absent
                          ? result<device::Abilities>(Error{errc::failed_precondition, "there is no rbd module"})
                          : device::Abilities{0, krbd::knows_aes256k(of.inputs.kernel)};
  const auto known = plan::choose_kind(mounter, 0, key, kernel), unknown = plan::choose_kind(mounter, 1, key, kernel);
  if (!known) return "";
  if (*known == device::Kind::nbd)
    return mounter == cephcsi::Mounter::nbd ? "corbd"
                                            : "corbd, because the kernel does not know keys of the type aes256k";
  return unknown ? "the kernel, or corbd if the image has a feature that the kernel lacks" : "the kernel";
}

void judge_client(const StagedVolume& of, VolumeForecast& into, const cephcsi::Parameters& read,
                  const std::string& by) {
  const std::string serves = client(of, read.mounter);
  into.next_stage = serves.empty() ? kRefused : serves + ", by " + by;
  if (serves.empty())
    add_finding(
        into, Grade::failure, "client",
        "the kernel is to serve it from its next stage on, or is asked first (tryOtherMounters), and has no rbd module",
        "install the module, or have corbd serve it by a rule in mounters.json");
  const std::string features = attribute(of, "imageFeatures");
  if (read.mounter != cephcsi::Mounter::krbd && !features.empty() &&
      features.find("exclusive-lock") == std::string::npos)
    add_finding(
        into, attaches_nothing(of.inputs) ? Grade::failure : Grade::warning, "exclusive-lock",
        std::string("its StorageClass made its image without exclusive-lock: after a crash ") +
            (attaches_nothing(of.inputs) ? "nothing proves that no other node wrote, and it waits for your word "
                                           "(`corbd heal ID --without-proof`)"
                                         : "only the VolumeAttachment can prove that no other node wrote"),
        "`rbd feature enable POOL/IMAGE exclusive-lock`");
}

void judge_attributes(const StagedVolume& of, VolumeForecast& into) {
  if (of.object == nullptr) {
    into.next_stage = "not known";
    if (of.inputs.api)
      add_finding(into, Grade::warning, "attributes",
                  "its attributes are not known: " +
                      (of.facts == nullptr ? "no PersistentVolume of it was found" : of.facts->volume.error().text),
                  "`kubectl get pv -o yaml` has them; give --nodeid, so that its VolumeAttachment is found");
    judge_secret(of, into, nullptr);
    return;
  }
  const auto choice = choose(of);
  const auto read = cephcsi::read_parameters(of.object->attributes, choice.mounters);
  if (!read) {
    into.next_stage = kRefused;
    add_finding(into, Grade::failure, "attributes", read.error().text, kForLife);
    return;
  }
  judge_encryption(of, into, *read);
  judge_client(of, into, *read, choice.by);
  judge_secret(of, into, &*read);
}

/// Names the server between the change and the next stage. A staged volume keeps its client until then.
std::string after(const StagedVolume& of) {
  switch (of.served_by) {
    case ServedBy::none:
      return "nobody: there is nothing to serve";
    case ServedBy::kernel:
      return "the kernel, without a break";
    case ServedBy::agent:
      return "corbd: it does already";
    case ServedBy::other:
      return "corbd, in place";
    case ServedBy::nobody:
      return of.inputs.daemons ? "corbd, in place, on the proof that no other node wrote" : "not known";
  }
  return "";
}

VolumeForecast migrated(const StagedVolume& of) {
  auto made = start_forecast(of);
  made.after = after(of);
  if (of.served_by == ServedBy::agent) {
    made.next_stage = made.after;
    judge_agent(of, made);
    return made;
  }
  judge_stash(of, made);
  if (of.served_by != ServedBy::none || of.at.mounted) judge_device(of, made);
  judge_io(of, made);
  judge_attachment(of, made);
  judge_cluster(of, made);
  judge_attributes(of, made);
  const bool refused = std::ranges::any_of(
      made.findings, [](const Finding& one) { return one.check == "device" || one.check == "identifier"; });
  if (refused || (!of.at.stash && of.served_by != ServedBy::none))
    made.after =
        of.served_by == ServedBy::kernel ? "the kernel; corbd refuses its next stage" : "nobody: corbd refuses it";
  return made;
}

Finding driver_there(const ForecastInputs& inputs) {
  if (inputs.nbd_there) return {"nbd", Grade::ok, "the kernel's nbd driver is loaded", ""};
  return {"nbd", Grade::failure, "the kernel's nbd driver is not loaded, so corbd can serve nothing",
          "run `modprobe nbd nbds_max=0`, and list nbd in /etc/modules-load.d for the next boot"};
}

/// Judges how a crash, or an upgrade, affects volumes that corbd serves.
void judge_driver(const ForecastInputs& inputs, std::vector<Finding>& into) {
  if (attaches_nothing(inputs))
    into.push_back(
        {"csidriver", Grade::warning,
         "the CSIDriver " + inputs.options.driver +
             " says attachRequired: false: after each end of corbd, only the lock of an image proves that no "
             "other node wrote it. Where that lock is free, the volume waits for your word",
         "give each image the feature exclusive-lock; `corbd heal ID --without-proof` is the override. To have "
         "VolumeAttachments, make the CSIDriver anew with attachRequired: true while no pod uses its "
         "volumes"});
}

void judge_files(const ForecastInputs& inputs, std::vector<Finding>& into) {
  if (!inputs.clusters)
    into.push_back({"config.json", Grade::failure, inputs.clusters.error().text,
                    "mount ceph-csi's ConfigMap ceph-csi-config here, or name its folder with --config-dir"});
  if (!inputs.mappings)
    into.push_back({"cluster-mapping.json", Grade::failure, inputs.mappings.error().text,
                    "correct it: without it a volume that moved to another cluster is not found"});
  if (!inputs.mounters)
    into.push_back({"mounters.json", Grade::failure, inputs.mounters.error().text,
                    "correct it: until then no volume can be staged that is not staged yet"});
}

void judge_proxies(const ForecastInputs& inputs, std::vector<Finding>& into) {
  if (inputs.proxies.empty() || !inputs.kms_config) return;
  std::string names;
  for (const auto& name : inputs.proxies) names += (names.empty() ? "" : ", ") + name;
  into.push_back({"proxy", Grade::warning,
                  "ceph-csi asks its KMSs through a proxy (" + names +
                      " in its environment), and corbd asks them directly: without a way there, no stage of an "
                      "encrypted volume gets its key",
                  "let this node reach each server that the KMS config names, or name there a server in the cluster "
                  "that passes the requests on"});
}

}  // namespace

Forecast forecast_migration(const ForecastInputs& inputs) {
  Forecast forecast{{driver_there(inputs)}, {}};
  judge_files(inputs, forecast.node);
  judge_driver(inputs, forecast.node);
  judge_proxies(inputs, forecast.node);
  std::ranges::move(node_findings(inputs), std::back_inserter(forecast.node));
  for (const auto& at : inputs.staged)
    if (const StagedVolume of = make_staged_volume(inputs, at); !is_empty(of)) forecast.volumes.push_back(migrated(of));
  return forecast;
}

}  // namespace corbd::migration
