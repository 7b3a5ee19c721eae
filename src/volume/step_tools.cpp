#include "step_tools.hpp"

#include <algorithm>

#include "corbd/cephcsi/affinity.hpp"
#include "corbd/cephcsi/io_limits.hpp"
#include "corbd/core/log.hpp"

namespace corbd::volume {

namespace {

/// Returns the clusters in config.json that may be the volume's: its own or, if that is gone, all that
/// cluster-mapping.json maps it to.
result<std::vector<NamedCluster>> clusters_of(const Ports& ports, const Record& record) {
  const std::string& own = record.source.cluster_id;
  auto found = ports.directory.find(own);
  if (found) return std::vector{NamedCluster{own, std::move(*found)}};
  if (found.error().code != errc::not_found) return found.error();
  const auto mapped = ports.directory.mirrors_of(own);
  Error missing = found.error();
  if (!mapped) missing.text += "; " + mapped.error().text;
  std::vector<NamedCluster> all;
  for (const auto& other : mapped ? *mapped : std::vector<std::string>()) {
    if (auto cluster = ports.directory.find(other)) all.push_back({other, std::move(*cluster)});
    missing.text += "; nor is cluster " + other + " there, to which cluster-mapping.json maps it";
  }
  if (all.empty()) return missing;
  return all;
}

bool is_own(const Ports& ports, const Record& record, const NamedCluster& one) {
  return ports.clusters.fsid_of(one.cluster.monitors) == record.key.fsid;
}

image::Access access_at(const Record& record, const Credential& as, const NamedCluster& at) {
  return {at.id, at.cluster.monitors, as.user, as.key,
          cephcsi::with_policy(record.source.serving.config, at.cluster.reads)};
}

}  // namespace

result<NamedCluster> cluster_of(const Ports& ports, const Record& record) {
  const auto all = clusters_of(ports, record);
  if (!all) return all.error();
  const auto own = std::ranges::find_if(*all, [&](const auto& one) { return is_own(ports, record, one); });
  return own == all->end() ? all->front() : *own;
}

std::string why_cluster_gone(const Ports& ports, const Record& record) {
  const auto at = cluster_of(ports, record);
  return !at && at.error().code == errc::not_found ? at.error().text : std::string();
}

task<result<>> identify_cluster(const Ports& ports, Record record, Credential as, Until until) {
  const auto all = clusters_of(ports, record);
  const auto own = [&](const auto& one) { return is_own(ports, record, one); };
  if (!all || all->size() < 2 || std::ranges::any_of(*all, own)) co_return result<>();
  Error none{errc::failed_precondition, "cluster " + record.source.cluster_id +
                                            " is not in config.json, and none that cluster-mapping.json maps it to has "
                                            "the volume's fsid " +
                                            record.key.fsid};
  for (const auto& one : *all) {
    const auto to = access_at(record, as, one);
    const auto connected = co_await ports.clusters.prepare(to, 1, until);
    if (own(one)) co_return result<>();
    ports.clusters.retire(to);
    // A cluster that refuses the user may still be the volume's, whose Secret then has a newer key.
    if (!connected && (is_refusal(connected.error()) || none.code == errc::failed_precondition))
      none.code = connected.error().code;
    none.text +=
        "; cluster " + one.id + ": " +
        (connected ? "fsid " + ports.clusters.fsid_of(to.monitors).value_or("unknown") : connected.error().text);
  }
  co_return none;
}

result<image::Access> access_of(const Ports& ports, const Record& record, const Credential& as) {
  const auto found = cluster_of(ports, record);
  if (!found) return found.error();
  return access_at(record, as, *found);
}

bool is_own_cluster(const Ports& ports, const Record& record, const image::Access& access) {
  return access.cluster_id == record.source.cluster_id || ports.clusters.fsid_of(access.monitors) == record.key.fsid;
}

kms::KeyRequest key_request(const Volume& volume, const std::string& kms_id, const Wish& wish) {
  // Leave out the claim, which is for people: it may come from the image's metadata, and those are of another
  // PersistentVolume.
  kms::KeyRequest request{kms_id, {volume.id, volume.record->encryption->tenant}};
  const auto take = [&request](const auto& from) {
    request.passphrase = from.passphrase;
    request.secrets = from.secrets;
  };
  if (const auto* staged = std::get_if<Staged>(&wish)) take(*staged);
  if (const auto* rekeyed = std::get_if<Rekeyed>(&wish)) take(*rekeyed);
  return request;
}

task<result<image::Access>> StepTools::find_access(const Volume& volume) const {
  const auto identified = co_await identify_cluster(ports_, *volume.record, volume.credentials.asks_with(), deadline());
  if (!identified) co_return identified.error();
  co_return access(volume);
}

Error lacks_passphrase(const std::string& volume_id) {
  return {errc::invalid_argument,
          "volume " + volume_id + " is encrypted: add the field 'encryptionPassphrase' to its node-stage secret"};
}

Until StepTools::deadline() const { return {clock_.now() + config_.step_limit}; }
Until StepTools::soon() const { return {clock_.now() + std::chrono::seconds(5)}; }
Until StepTools::long_deadline() const { return {clock_.now() + config_.long_step_limit}; }
Until StepTools::while_served(Volume& volume, Until until) const {
  until.scope = &volume.link_scopes.back();
  return until;
}

task<> StepTools::look_at_io_limits(Volume& volume) {
  const auto found = co_await volume.server.image()->metadata_below(std::string(cephcsi::kIoLimits), soon());
  if (!found)
    log::warning("volume.io_limits_unknown",
                 {{"volume", volume.id},
                  {"error", found.error().text},
                  {"effect", "a pod that gets the volume now runs without limits of a VolumeAttributesClass"}});
  volume.facts.io_limits = found ? cephcsi::io_limits_of(*found) : cephcsi::IoLimits();
}

result<image::Access> StepTools::access(const Volume& volume) const {
  return access_of(ports_, *volume.record, volume.credentials.asks_with());
}

HelperOwner StepTools::owner(const Volume& volume) const {
  return {ports_.records.busy_file(volume.id),
          volume.record ? "cluster " + volume.record->source.cluster_id : "volumes without a record"};
}

result<device::Seen> StepTools::device_of(const Volume& volume) const {
  const auto found = find_devices(volume, ports_);
  if (!found) return found.error();
  if (!found->empty()) return found->front();
  return Error{errc::unavailable, "the device of volume " + volume.id + " is gone"};
}

result<std::uint32_t> StepTools::device_index(const Volume& volume) const {
  auto device = device_of(volume);
  if (!device) return device.error();
  return device->index;
}

result<std::string> StepTools::device_path(const Volume& volume) const {
  auto device = device_of(volume);
  if (!device) return device.error();
  return device::path(*device);
}

result<std::string> StepTools::data_path(const Volume& volume) const {
  if (volume.record->encrypts_device()) return "/dev/mapper/" + mapping_name(volume.id);
  return device_path(volume);
}

}  // namespace corbd::volume
