#include "step_tools.hpp"

#include "corbd/cephcsi/affinity.hpp"
#include "corbd/cephcsi/io_limits.hpp"
#include "corbd/core/log.hpp"

namespace corbd::volume {

result<NamedCluster> cluster_of(const Ports& ports, const Record& record) {
  const std::string& own = record.source.cluster_id;
  auto found = ports.directory.find(own);
  if (found) return NamedCluster{own, std::move(*found)};
  if (found.error().code != errc::not_found) return found.error();
  const auto mapped = ports.directory.mirrors_of(own);
  Error missing = found.error();
  if (!mapped) missing.text += "; " + mapped.error().text;
  for (const auto& other : mapped ? *mapped : std::vector<std::string>()) {
    if (auto cluster = ports.directory.find(other)) return NamedCluster{other, std::move(*cluster)};
    missing.text += "; nor is cluster " + other + " there, to which cluster-mapping.json maps it";
  }
  return missing;
}

result<image::Access> access_of(const Ports& ports, const Record& record, const Credential& as) {
  const auto found = cluster_of(ports, record);
  if (!found) return found.error();
  return image::Access{found->id, found->cluster.monitors, as.user, as.key,
                       cephcsi::with_policy(record.source.serving.config, found->cluster.reads)};
}

kms::KeyRequest key_request(const Volume& volume, const std::string& kms_id, const Wish& wish) {
  // The claim is for people: it may be what the image's metadata name, and those are of another PersistentVolume.
  kms::KeyRequest request{kms_id, {volume.id, volume.record->tenant}};
  const auto take = [&request](const auto& from) {
    request.passphrase = from.passphrase;
    request.secrets = from.secrets;
  };
  if (const auto* staged = std::get_if<Staged>(&wish)) take(*staged);
  if (const auto* rekeyed = std::get_if<Rekeyed>(&wish)) take(*rekeyed);
  return request;
}

Error lacks_passphrase(const std::string& volume_id) {
  return {errc::invalid_argument,
          "volume " + volume_id + " is encrypted: add the field 'encryptionPassphrase' to its node-stage secret"};
}

Until StepTools::deadline() const { return {clock_.now() + config_.step_limit}; }
Until StepTools::long_deadline() const { return {clock_.now() + config_.long_step_limit}; }
Until StepTools::while_served(Volume& volume, Until until) const {
  until.scope = &volume.link_scopes.back();
  return until;
}

task<> StepTools::look_at_io_limits(Volume& volume) {
  constexpr std::chrono::seconds kSoon{5};
  const auto found =
      co_await volume.server.image()->metadata_below(std::string(cephcsi::kIoLimits), {clock_.now() + kSoon});
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
  if (!volume.record->kms_id.empty()) return "/dev/mapper/" + mapping_name(volume.id);
  return device_path(volume);
}

}  // namespace corbd::volume
