#include "corbd/mounting/spec.hpp"

#include <algorithm>
#include <filesystem>

#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "corbd/rbd/ceph_conf.hpp"

namespace corbd::mounting {
namespace {

constexpr std::size_t kLargestPassphrase = 4096;

struct Named {
  std::string pool, image;
  bool provisioned = false;  ///< `image` is the ID of a volume that a provisioner made
};

/// Recognises ceph-csi's IDs: "0001-" and the length of the cluster ID in four digits (docs/sources.md#volume-id).
bool is_volume_id(const std::string& text) {
  return text.size() > 36 && text.starts_with("0001-") && text[9] == '-' && text.find('/') == text.npos;
}

result<Named> named(const std::string& text) {
  if (is_volume_id(text)) return Named{"", text, true};
  const auto parts = pieces(text, '/');
  if (parts.size() > 2)
    return Error{errc::invalid_argument, "'" + printable(text) +
                                             "' names a RADOS namespace: set it for the cluster in config.json "
                                             "(rbd.radosNamespace), and give POOL/IMAGE here"};
  if (std::ranges::any_of(parts, [](std::string_view part) { return part.empty(); }))
    return Error{errc::invalid_argument, "'" + printable(text) + "' is not an image: give POOL/IMAGE"};
  if (text.find('@') != text.npos)
    return Error{errc::invalid_argument, "'" + printable(text) + "' is a snapshot: clone it, and mount the clone"};
  if (parts.size() == 1) return Named{"rbd", text};
  return Named{std::string(parts[0]), std::string(parts[1])};
}

result<> add_secrets(const MountSpec& spec, manager::Mount& mount) {
  auto key = rbd::read_keyring(spec.keyring, spec.user);
  if (!key) return key.error();
  mount.secrets["userID"] = Secret(spec.user);
  mount.secrets["userKey"] = std::move(*key);
  if (spec.passphrase_file.empty()) return {};
  auto passphrase = read_file(spec.passphrase_file, kLargestPassphrase);
  if (!passphrase) return with_context("--passphrase-file", passphrase.error());
  mount.secrets["encryptionPassphrase"] = Secret(std::move(*passphrase));
  return {};
}

result<> add_attributes(const MountSpec& spec, const Named& name, manager::Mount& mount) {
  auto& context = mount.volume_context;
  if (!name.provisioned) {
    context["staticVolume"] = "true";
    context["pool"] = name.pool;
    context["imageFeatures"] = "layering";  // required for a static volume, but the image has its own
    context["clusterID"] = spec.cluster;
    if (spec.cluster.empty()) {
      const auto conf = rbd::read_ceph_conf(spec.conf);
      if (!conf)
        return with_context("which cluster has the image is not known: give --cluster, or --conf", conf.error());
      context["clusterID"] = conf->fsid;
    }
  }
  if (!spec.kms.empty()) {
    context["encrypted"] = "true";
    context["encryptionKMSID"] = spec.kms;
  }
  for (const auto& attribute : spec.attributes) {
    const auto equals = attribute.find('=');
    if (equals == attribute.npos || equals == 0)
      return Error{errc::invalid_argument, "--attribute " + printable(attribute) + " is not name=value"};
    context[attribute.substr(0, equals)] = attribute.substr(equals + 1);
  }
  return {};
}

/// Key of each text of a spec in the claim, and in a file.
struct TextField {
  const char* key;
  std::string MountSpec::* field;
};
constexpr TextField kTexts[] = {{"image", &MountSpec::image},     {"dir", &MountSpec::dir},
                                {"cluster", &MountSpec::cluster}, {"conf", &MountSpec::conf},
                                {"user", &MountSpec::user},       {"keyring", &MountSpec::keyring},
                                {"fstype", &MountSpec::fstype},   {"options", &MountSpec::options},
                                {"encrypted", &MountSpec::kms},   {"passphrase-file", &MountSpec::passphrase_file}};
struct BoolField {
  const char* key;
  bool MountSpec::* field;
};
constexpr BoolField kBools[] = {{"read-only", &MountSpec::read_only}, {"block", &MountSpec::block}};

}  // namespace

result<std::string> pool_of(const MountSpec& spec) {
  auto name = named(spec.image);
  if (!name) return name.error();
  return std::move(name->pool);
}

std::string assign(MountSpec& spec, std::string_view key, const std::string& value) {
  for (const auto& text : kTexts)
    if (key == text.key) {
      spec.*text.field = value;
      return "";
    }
  for (const auto& flag : kBools)
    if (key == flag.key) {
      spec.*flag.field = value == "true";
      return value == "true" || value == "false" ? "" : std::string(key) + " is neither true nor false";
    }
  if (key != "attribute") return "there is no key " + printable(std::string(key));
  spec.attributes.push_back(value);
  return "";
}

result<manager::Mount> mount_of(const MountSpec& spec) {
  if (!spec.dir.starts_with('/'))
    return Error{errc::invalid_argument,
                 "'" + printable(spec.dir) + "' is not an absolute path: give one that begins with /"};
  if (spec.block && (!spec.fstype.empty() || !spec.options.empty()))
    return Error{errc::invalid_argument, "a raw block device has neither a filesystem type nor mount options"};
  const auto name = named(spec.image);
  if (!name) return name.error();
  manager::Mount mount;
  mount.volume.external_id = name->image;
  mount.volume.name = name->provisioned ? name->image : name->pool + "/" + name->image;
  mount.user = spec.dir;
  mount.target = spec.dir;
  mount.usage.access_mode = spec.read_only ? "MULTI_NODE_READER_ONLY" : "SINGLE_NODE_MULTI_WRITER";
  mount.usage.attachment = spec.block ? manager::AccessType::block : manager::AccessType::filesystem;
  mount.usage.read_only = spec.read_only;
  mount.usage.fstype = spec.fstype;
  for (const auto option : pieces(spec.options, ','))
    if (!option.empty()) mount.usage.mount_options.emplace_back(option);
  if (auto added = add_attributes(spec, *name, mount); !added) return added.error();
  if (auto added = add_secrets(spec, mount); !added) return added.error();
  for (const auto& text : kTexts) mount.notes[text.key] = spec.*text.field;
  for (const auto& flag : kBools) mount.notes[flag.key] = spec.*flag.field ? "true" : "false";
  std::size_t number = 0;
  for (const auto& attribute : spec.attributes) mount.notes["attribute." + std::to_string(number++)] = attribute;
  return mount;
}

MountSpec spec_of(const manager::Claim& claim) {
  MountSpec spec;
  for (const auto& [key, value] : claim.notes) assign(spec, key.substr(0, key.find('.')), value);
  return spec;
}

bool same_volume(const manager::Claim& claim, const manager::Mount& mount) {
  return claim.target == mount.target && claim.volume.name == mount.volume.name &&
         claim.volume_context == mount.volume_context;
}

bool keep_mounted(manager::Mount& mount, const manager::Claim& there, Keeps keeps) {
  auto usage = mount.usage;
  if (usage.fstype.empty()) usage.fstype = there.usage.fstype;
  if (keeps == Keeps::type_and_options) usage.mount_options = there.usage.mount_options;
  if (!same_volume(there, mount) || usage != there.usage) return false;
  mount.usage = std::move(usage);
  return true;
}

result<> read_settings(std::string_view text,
                       const std::function<std::string(std::string_view key, std::string_view value)>& take) {
  std::size_t number = 0;
  for (const auto piece : pieces(text, '\n')) {
    ++number;
    const auto line = trimmed(piece);
    if (line.empty() || line.front() == '#') continue;
    const auto equals = line.find('=');
    const std::string wrong = equals == line.npos
                                  ? "it is not key = value"
                                  : take(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
    if (!wrong.empty()) return Error{errc::invalid_argument, "line " + std::to_string(number) + ": " + wrong};
  }
  return {};
}

result<MountSpec> parse_mount_file(std::string_view text) {
  MountSpec spec;
  const auto read = read_settings(
      text, [&spec](std::string_view key, std::string_view value) { return assign(spec, key, std::string(value)); });
  if (!read) return read.error();
  if (spec.image.empty() || spec.dir.empty())
    return Error{errc::invalid_argument, "it needs a line `image = ...` and a line `dir = ...`"};
  return spec;
}

std::vector<MountFile> read_mount_files(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    if (at->path().extension() == ".conf") paths.push_back(at->path());
  std::ranges::sort(paths);
  std::vector<MountFile> files;
  for (const auto& path : paths) {
    const auto text = read_file(path, 64 << 10);
    auto spec = text ? parse_mount_file(*text) : result<MountSpec>(text.error());
    if (!spec) spec = with_context(path, spec.error());
    files.push_back({path, std::move(spec)});
  }
  return files;
}

}  // namespace corbd::mounting
