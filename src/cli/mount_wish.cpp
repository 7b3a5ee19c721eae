#include "mount_wish.hpp"

#include <algorithm>
#include <filesystem>

#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "corbd/host/values.hpp"
#include "corbd/rbd/ceph_conf.hpp"

namespace corbd::cli {
namespace {

constexpr std::size_t kLargestPassphrase = 4096;

struct Named {
  std::string pool, image;
  bool provisioned = false;  ///< `image` is the ID of such a volume
};

/// ceph-csi's IDs: "0001-" and the length of the cluster ID in four digits (docs/sources.md#volume-id).
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
    return Error{errc::invalid_argument, "'" + printable(text) + "' is no image: give POOL/IMAGE"};
  if (text.find('@') != text.npos)
    return Error{errc::invalid_argument, "'" + printable(text) + "' is a snapshot: clone it, and mount the clone"};
  if (parts.size() == 1) return Named{"rbd", text};
  return Named{std::string(parts[0]), std::string(parts[1])};
}

result<> add_secrets(const Mounts::Wish& wish, manager::Mount& mount) {
  auto key = rbd::read_keyring(wish.keyring, wish.user);
  if (!key) return key.error();
  mount.secrets["userID"] = Secret(wish.user);
  mount.secrets["userKey"] = std::move(*key);
  if (wish.passphrase_file.empty()) return {};
  auto passphrase = read_file(wish.passphrase_file, kLargestPassphrase);
  if (!passphrase) return with_context("--passphrase-file", passphrase.error());
  mount.secrets["encryptionPassphrase"] = Secret(std::move(*passphrase));
  return {};
}

result<> add_attributes(const Mounts::Wish& wish, const Named& name, manager::Mount& mount) {
  auto& context = mount.volume_context;
  if (!name.provisioned) {
    context["staticVolume"] = "true";
    context["pool"] = name.pool;
    context["imageFeatures"] = "layering";  // required of a static volume, and the image has its own
    context["clusterID"] = wish.cluster;
    if (wish.cluster.empty()) {
      const auto conf = rbd::read_ceph_conf(wish.conf);
      if (!conf)
        return with_context("which cluster has the image is not known: give --cluster, or --conf", conf.error());
      context["clusterID"] = conf->fsid;
    }
  }
  if (!wish.kms.empty()) {
    context["encrypted"] = "true";
    context["encryptionKMSID"] = wish.kms;
  }
  for (const auto& attribute : wish.attributes) {
    const auto equals = attribute.find('=');
    if (equals == attribute.npos || equals == 0)
      return Error{errc::invalid_argument, "--attribute " + printable(attribute) + " is not name=value"};
    context[attribute.substr(0, equals)] = attribute.substr(equals + 1);
  }
  return {};
}

/// The key under which the claim remembers each text of a wish, which is its key in a file, too.
struct TextField {
  const char* key;
  std::string Mounts::Wish::* field;
};
constexpr TextField kTexts[] = {
    {"image", &Mounts::Wish::image},     {"dir", &Mounts::Wish::dir},
    {"cluster", &Mounts::Wish::cluster}, {"conf", &Mounts::Wish::conf},
    {"user", &Mounts::Wish::user},       {"keyring", &Mounts::Wish::keyring},
    {"fstype", &Mounts::Wish::fstype},   {"options", &Mounts::Wish::options},
    {"encrypted", &Mounts::Wish::kms},   {"passphrase-file", &Mounts::Wish::passphrase_file}};
struct BoolField {
  const char* key;
  bool Mounts::Wish::* field;
};
constexpr BoolField kBools[] = {{"read-only", &Mounts::Wish::read_only}, {"block", &Mounts::Wish::block}};

/// Puts the value into its field. What is wrong with the line, or nothing.
std::string assign_line(Mounts::Wish& wish, const std::string& key, const std::string& value) {
  for (const auto& text : kTexts)
    if (key == text.key) {
      wish.*text.field = value;
      return "";
    }
  for (const auto& flag : kBools)
    if (key == flag.key) {
      wish.*flag.field = value == "true";
      return value == "true" || value == "false" ? "" : key + " is neither true nor false";
    }
  if (key != "attribute") return "there is no key " + printable(key);
  wish.attributes.push_back(value);
  return "";
}

}  // namespace

result<manager::Mount> mount_of(const Mounts::Wish& wish) {
  if (!wish.dir.starts_with('/'))
    return Error{errc::invalid_argument,
                 "'" + printable(wish.dir) + "' is no absolute path: give one that begins with /"};
  if (wish.block && (!wish.fstype.empty() || !wish.options.empty()))
    return Error{errc::invalid_argument, "a raw block device has neither a filesystem type nor mount options"};
  const auto name = named(wish.image);
  if (!name) return name.error();
  manager::Mount mount;
  mount.volume.external_id = name->image;
  mount.volume.name = name->provisioned ? name->image : name->pool + "/" + name->image;
  mount.user = wish.dir;
  mount.target = wish.dir;
  mount.usage.access_mode = wish.read_only ? "MULTI_NODE_READER_ONLY" : "SINGLE_NODE_MULTI_WRITER";
  mount.usage.attachment = wish.block ? manager::Attachment::block : manager::Attachment::filesystem;
  mount.usage.read_only = wish.read_only;
  mount.usage.fstype = wish.block || !wish.fstype.empty() ? wish.fstype : std::string(host::kDefaultFilesystem);
  for (const auto option : pieces(wish.options, ','))
    if (!option.empty()) mount.usage.mount_options.emplace_back(option);
  if (auto added = add_attributes(wish, *name, mount); !added) return added.error();
  if (auto added = add_secrets(wish, mount); !added) return added.error();
  for (const auto& text : kTexts) mount.notes[text.key] = wish.*text.field;
  for (const auto& flag : kBools) mount.notes[flag.key] = wish.*flag.field ? "true" : "false";
  std::size_t number = 0;
  for (const auto& attribute : wish.attributes) mount.notes["attribute." + std::to_string(number++)] = attribute;
  return mount;
}

Mounts::Wish wish_of(const manager::Claim& claim) {
  Mounts::Wish wish;
  for (const auto& [key, value] : claim.notes) assign_line(wish, key.substr(0, key.find('.')), value);
  return wish;
}

result<Mounts::Wish> parse_mount_file(std::string_view text) {
  Mounts::Wish wish;
  std::size_t number = 0;
  for (const auto piece : pieces(text, '\n')) {
    ++number;
    const auto line = trimmed(piece);
    if (line.empty() || line.front() == '#') continue;
    const auto equals = line.find('=');
    std::string wrong = "it is not key = value";
    if (equals != line.npos)
      wrong = assign_line(wish, std::string(trimmed(line.substr(0, equals))),
                          std::string(trimmed(line.substr(equals + 1))));
    if (!wrong.empty()) return Error{errc::invalid_argument, "line " + std::to_string(number) + ": " + wrong};
  }
  if (wish.image.empty() || wish.dir.empty())
    return Error{errc::invalid_argument, "it needs a line `image = ...` and a line `dir = ...`"};
  return wish;
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
    auto wish = text ? parse_mount_file(*text) : result<Mounts::Wish>(text.error());
    if (!wish) wish = with_context(path, wish.error());
    files.push_back({path, std::move(wish)});
  }
  return files;
}

}  // namespace corbd::cli
