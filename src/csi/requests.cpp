#include "requests.hpp"

#include <algorithm>
#include <array>
#include <boost/algorithm/string/join.hpp>

#include "corbd/cephcsi/claim.hpp"
#include "corbd/cephcsi/handle.hpp"
#include "corbd/cephcsi/parameters.hpp"
#include "corbd/core/log.hpp"
#include "corbd/host/values.hpp"
#include "corbd/plan/combination.hpp"

namespace corbd::csi {
namespace {

using ::csi::v1::VolumeCapability;
using Map = google::protobuf::Map<std::string, std::string>;

constexpr std::size_t kMaxName = 255;    // NAME_MAX: the volume is mounted at <staging path>/<volume ID>
constexpr std::size_t kMaxPath = 4095;   // PATH_MAX without the terminating zero
constexpr std::size_t kMaxFlags = 4096;  // limit of the CSI specification for all mount flags together

Error invalid(std::string text) { return {errc::invalid_argument, std::move(text)}; }
Error not_yet(std::string text) { return {errc::unimplemented, std::move(text)}; }

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

}  // namespace

std::map<std::string, Secret> other_secrets(const Map& secrets) {
  constexpr std::array<std::string_view, 5> known{"userID", "userKey", "adminId", "key", kPassphrase};
  std::map<std::string, Secret> others;
  for (const auto& [name, secret] : secrets)
    if (std::ranges::find(known, name) == known.end()) others.emplace(name, Secret(secret));
  return others;
}

std::string without_end(std::string key) {
  key.resize(key.find_last_not_of(" \t\r\n") + 1);
  return key;
}

result<> check_id(const std::string& id) {
  if (id.empty()) return invalid("volume ID missing in request");
  if (id.find("..") != id.npos) return invalid("the volume ID contains path traversal sequences");
  if (id.find_first_of("/\\") != id.npos) return invalid("the volume ID contains path separators");
  if (has_control(id)) return invalid("the volume ID contains control characters");
  return {};
}

result<> check_known_path(const std::string& path, const std::string& what) {
  if (path.empty()) return invalid(what + " missing in request");
  if (path.size() > kMaxPath) return invalid(what + " is longer than " + std::to_string(kMaxPath) + " bytes");
  if (has_control(path)) return invalid(what + " contains control characters");
  return {};
}

namespace {

result<> check_id_to_use(const std::string& id) {
  if (auto well = check_id(id); !well) return well;
  if (id.size() > kMaxName)
    return invalid("the volume ID has " + std::to_string(id.size()) + " bytes; at most " + std::to_string(kMaxName) +
                   " can be the name of a mount point");
  return {};
}

result<> check_path(const std::string& path, const std::string& what) {
  if (auto plain = check_known_path(path, what); !plain) return plain;
  if (!path.starts_with('/')) return invalid(what + " '" + path + "' is not absolute");
  if ((path + "/").find("/../") != std::string::npos) return invalid(what + " '" + path + "' contains '..'");
  return {};
}

/// Joins the flags into one line. A flag may hold several options, as in a StorageClass with "noatime,discard" in one
/// line, or a part of one: kubelet splits a PersistentVolume's annotation at every comma, also inside SELinux's
/// context="a:b:c:s0:c1,c2". ceph-csi passes them to mount(8), which sees only the whole line, too.
result<std::string> line_of(const VolumeCapability::MountVolume& mount) {
  std::string line;
  for (const auto& flag : mount.mount_flags())
    if (!flag.empty()) line += (line.empty() ? "" : ",") + flag;
  if (has_control(line)) return invalid("a mount flag contains a control character");
  if (std::ranges::count(line, '"') % 2 != 0) return invalid("a mount flag has a double quote that is not closed");
  if (line.size() > kMaxFlags)
    return invalid("the mount flags together have more than " + std::to_string(kMaxFlags) + " bytes");
  return line;
}

std::string value(const Map& map, const char* key) {
  const auto place = map.find(key);
  return place == map.end() ? std::string() : place->second;
}

result<plan::Capability> capability_of(const VolumeCapability& from) {
  using Mode = VolumeCapability::AccessMode;
  if (from.access_type_case() == VolumeCapability::ACCESS_TYPE_NOT_SET)
    return invalid("volume capability has no access type");
  plan::Capability capability;
  capability.block = from.has_block();
  switch (from.access_mode().mode()) {
    case Mode::SINGLE_NODE_WRITER:
    case Mode::SINGLE_NODE_MULTI_WRITER:
      break;
    case Mode::SINGLE_NODE_SINGLE_WRITER:
      capability.single_writer = true;
      break;
    case Mode::SINGLE_NODE_READER_ONLY:
    case Mode::MULTI_NODE_READER_ONLY:
      capability.read_only = true;
      break;
    case Mode::MULTI_NODE_MULTI_WRITER:
      if (!capability.block) return error_of(plan::not_served::kFilesystemForMany, "rbd:");
      capability.shared = true;
      break;
    case Mode::MULTI_NODE_SINGLE_WRITER:
      return not_yet("access mode MULTI_NODE_SINGLE_WRITER is not served: use SINGLE_NODE_MULTI_WRITER");
    default:
      return invalid("volume capability has no known access mode");
  }
  if (capability.block) return capability;
  capability.fstype = from.mount().fs_type();
  const auto offered = host::offered_filesystems();
  if (!capability.fstype.empty() && std::ranges::find(offered, capability.fstype) == offered.end())
    return invalid("filesystem type '" + capability.fstype + "' is not supported: use " +
                   boost::algorithm::join(offered, ", "));
  auto flags = line_of(from.mount());
  if (!flags) return flags.error();
  capability.mount_flags = std::move(*flags);
  return capability;
}

result<std::string> checked_secret(std::string text, const char* key) {
  if (text.empty()) return invalid("missing field '" + std::string(key) + "' in secrets");
  const bool printable = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!printable)
    return invalid("field '" + std::string(key) +
                   "' in secrets has white space or other bytes that no user or key can "
                   "have");
  return text;
}

result<std::string> secret(const Map& secrets, const char* key) { return checked_secret(value(secrets, key), key); }

result<Secret> key_secret(const Map& secrets, const char* key) {
  auto checked = checked_secret(without_end(value(secrets, key)), key);
  if (!checked) return checked.error();
  return Secret(std::move(*checked));
}

/// Returns a name of a pool or an image from the attributes.
result<std::string> name_at(const Map& context, const char* key) {
  std::string name = value(context, key);
  if (has_control(name) || name.find_first_of("/@") != name.npos)
    return invalid(std::string(key) + " in the volume's attributes is not a valid name");
  return name;
}

/// Fills in from the volume ID what the attributes lack.
result<> complete_migrated(const std::string& id, plan::Source& source) {
  if (!source.cluster_id.empty() && !source.pool.empty() && !source.image.empty()) return {};
  const auto handle = cephcsi::decode_migrated_handle(id);
  if (!handle)
    return with_context("clusterID, pool or imageName is not set in the volume's attributes", handle.error());
  if (source.cluster_id.empty()) source.cluster_id = handle->cluster_id;
  if (source.pool.empty()) source.pool = handle->pool;
  if (source.image.empty()) source.image = handle->image;
  return {};
}

result<> complete_static(const ::csi::v1::NodeStageVolumeRequest& request, const cephcsi::Parameters& parameters,
                         plan::Staged& into) {
  plan::Source& source = into.source;
  source.cluster_id = value(request.volume_context(), "clusterID");
  auto pool = name_at(request.volume_context(), "pool");
  if (!pool) return pool.error();
  source.pool = std::move(*pool);
  source.image = request.volume_id();
  if (parameters.migrated) {
    auto image = name_at(request.volume_context(), "imageName");
    if (!image) return image.error();
    source.image = std::move(*image);
    if (auto completed = complete_migrated(request.volume_id(), source); !completed) return completed;
  }
  if (source.cluster_id.empty()) return invalid("clusterID must be set in the volume's attributes");
  if (source.pool.empty()) return invalid("pool must be set in the volume's attributes");
  return {};
}

/// The journal overrides the attributes. They are hints, because a StorageClass may say anything in them.
result<> complete_dynamic(const ::csi::v1::NodeStageVolumeRequest& request, plan::Staged& into) {
  const auto handle = cephcsi::decode_handle(request.volume_id());
  if (!handle) return handle.error();
  auto journal_pool = name_at(request.volume_context(), "journalPool");
  if (!journal_pool) return journal_pool.error();
  auto image = name_at(request.volume_context(), "imageName");
  if (!image) return image.error();
  into.source.cluster_id = handle->cluster_id;
  into.reserved = image::Reserved{handle->pool_id, handle->uuid, std::move(*journal_pool), std::move(*image)};
  return {};
}

result<cephcsi::Parameters> parameters_of(const Map& context, const cephcsi::Mounters& mounters) {
  return cephcsi::read_parameters({context.begin(), context.end()}, mounters);
}

/// Fills in the volume's part of the wish.
result<> complete(const ::csi::v1::NodeStageVolumeRequest& request, const cephcsi::Mounters& mounters,
                  plan::Staged& into) {
  auto parameters = parameters_of(request.volume_context(), mounters);
  if (!parameters) return parameters.error();
  if (auto done = parameters->is_static ? complete_static(request, *parameters, into) : complete_dynamic(request, into);
      !done)
    return done;
  into.read_only_otherwise = into.capability.read_only || parameters->read_only_otherwise;
  into.capability.read_only |= parameters->read_only;
  into.source.mkfs_options = value(request.volume_context(), "mkfsOptions");
  into.source.serving = std::move(parameters->serving);
  into.source.kernel = std::move(parameters->kernel);
  into.source.on_damage = parameters->on_damage;
  into.mounter = parameters->mounter;
  into.ignored = std::move(parameters->ignored);
  into.kms_id = std::move(parameters->kms_id);
  into.luks = std::move(parameters->luks);
  into.encryption_type = std::move(parameters->encryption_type);
  into.stash = std::move(parameters->stash);
  into.claim = cephcsi::pvc_of({request.volume_context().begin(), request.volume_context().end()});
  return {};
}

/// ceph-csi's controller puts the service accounts that may use the volume into the publish context
/// (docs/sources.md#service-account).
result<> check_service_account(const ::csi::v1::NodePublishVolumeRequest& request) {
  const std::string allowed = value(request.publish_context(), "serviceAccount");
  const std::string account = value(request.volume_context(), "csi.storage.k8s.io/serviceAccount.name");
  if (allowed.empty()) return {};
  if (account.empty()) {
    log::warning("volume.service_account_unknown", {{"volume", request.volume_id()},
                                                    {"effect", "the volume is published without the check"},
                                                    {"hint", "set podInfoOnMount in the CSIDriver"}});
    return {};
  }
  if (("," + allowed + ",").find("," + account + ",") != std::string::npos && account.find(',') == account.npos)
    return {};
  return Error{errc::permission_denied,
               "volume " + request.volume_id() + " service account restriction does not match pod's service account"};
}

}  // namespace

/// A migrated volume's secret has the key in "key". It has the user in "adminId", unless that is admin.
result<plan::Credential> credential_of(const Map& secrets) {
  if (const auto migrated = secrets.find("key"); migrated != secrets.end() && !migrated->second.empty()) {
    auto key = key_secret(secrets, "key");
    if (!key) return key.error();
    if (value(secrets, "adminId").empty()) return plan::Credential{"admin", std::move(*key)};
    auto user = secret(secrets, "adminId");
    if (!user) return user.error();
    return plan::Credential{std::move(*user), std::move(*key)};
  }
  auto user = secret(secrets, "userID");
  if (!user) return user.error();
  auto key = key_secret(secrets, "userKey");
  if (!key) return key.error();
  return plan::Credential{std::move(*user), std::move(*key)};
}

result<plan::Wish> wish_of(const ::csi::v1::NodeStageVolumeRequest& request, const cephcsi::Mounters& mounters) {
  if (!request.has_volume_capability()) return invalid("volume capability missing in request");
  if (auto id = check_id_to_use(request.volume_id()); !id) return id.error();
  if (auto path = check_path(request.staging_target_path(), "staging target path"); !path) return path.error();
  if (request.secrets().empty()) return invalid("stage secrets cannot be nil or empty");
  auto capability = capability_of(request.volume_capability());
  if (!capability) return capability.error();
  plan::Staged wish;
  wish.path = request.staging_target_path();
  wish.capability = std::move(*capability);
  wish.reads_alone =
      request.volume_capability().access_mode().mode() == VolumeCapability::AccessMode::SINGLE_NODE_READER_ONLY;
  if (auto done = complete(request, mounters, wish); !done) return done.error();
  auto credential = credential_of(request.secrets());
  if (!credential) return credential.error();
  wish.credential = std::move(*credential);
  wish.passphrase = Secret(value(request.secrets(), kPassphrase));
  wish.secrets = other_secrets(request.secrets());
  return plan::Wish(std::move(wish));
}

result<plan::Wish> wish_of(const ::csi::v1::NodeUnstageVolumeRequest& request) {
  if (auto id = check_id(request.volume_id()); !id) return id.error();
  if (auto path = check_path(request.staging_target_path(), "staging target path"); !path) return path.error();
  return plan::Wish(plan::Unstaged{request.staging_target_path()});
}

result<plan::Wish> wish_of(const ::csi::v1::NodePublishVolumeRequest& request, const cephcsi::Mounters& mounters) {
  if (!request.has_volume_capability()) return invalid("volume capability missing in request");
  if (auto id = check_id_to_use(request.volume_id()); !id) return id.error();
  if (auto path = check_path(request.target_path(), "target path"); !path) return path.error();
  // The CSI specification names this code for a plugin that stages volumes.
  if (request.staging_target_path().empty())
    return Error{errc::failed_precondition, "staging target path missing in request: stage the volume first"};
  if (auto path = check_path(request.staging_target_path(), "staging target path"); !path) return path.error();
  if (auto allowed = check_service_account(request); !allowed) return allowed.error();
  auto capability = capability_of(request.volume_capability());
  if (!capability) return capability.error();
  const auto parameters = parameters_of(request.volume_context(), mounters);
  if (!parameters) return parameters.error();
  plan::Published wish;
  wish.read_only_otherwise = capability->read_only || parameters->read_only_otherwise;
  capability->read_only |= parameters->read_only;
  wish.path = request.staging_target_path();
  wish.target = request.target_path();
  wish.read_only = request.readonly();
  const std::map<std::string, std::string> attributes(request.volume_context().begin(), request.volume_context().end());
  wish.pod = cephcsi::pod_of(attributes);
  wish.pod_uid = cephcsi::pod_uid_of(attributes);
  wish.claim = cephcsi::pvc_of(attributes);
  wish.capability = std::move(*capability);
  return plan::Wish(std::move(wish));
}

result<plan::Wish> wish_of(const ::csi::v1::NodeUnpublishVolumeRequest& request) {
  if (auto id = check_id(request.volume_id()); !id) return id.error();
  if (auto path = check_path(request.target_path(), "target path"); !path) return path.error();
  return plan::Wish(plan::Unpublished{request.target_path()});
}

result<plan::Wish> wish_of(const ::csi::v1::NodeExpandVolumeRequest& request) {
  if (auto id = check_id(request.volume_id()); !id) return id.error();
  if (auto path = check_known_path(request.volume_path(), "volume path"); !path) return path.error();
  const auto required = request.capacity_range().required_bytes(), limit = request.capacity_range().limit_bytes();
  if (required < 0 || limit < 0) return Error{errc::invalid_argument, "the capacity range has a negative size"};
  if (limit != 0 && limit < required)
    return Error{errc::out_of_range, "the limit of the capacity range is below the required size: " +
                                         std::to_string(required) + " to " + std::to_string(limit) + " bytes"};
  // The volume path may be another one that kubelet made itself, as in ceph-csi.
  plan::Expanded wish{request.staging_target_path(), static_cast<std::uint64_t>(required), request.volume_path()};
  if (wish.path.empty()) std::swap(wish.path, wish.target);
  return plan::Wish(std::move(wish));
}

}  // namespace corbd::csi
