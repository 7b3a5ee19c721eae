#include "corbd/cephcsi/parameters.hpp"

#include <algorithm>
#include <array>

#include "corbd/core/text.hpp"

namespace corbd::cephcsi {
namespace {

Error invalid(std::string text) { return {errc::invalid_argument, std::move(text)}; }

std::string value(const Attributes& attributes, const char* key) {
  const auto place = attributes.find(key);
  return place == attributes.end() ? std::string() : place->second;
}

struct Feature {
  std::string_view name, needs;
};
constexpr std::array<Feature, 6> kFeatures{{{"layering", ""},
                                            {"exclusive-lock", ""},
                                            {"object-map", "exclusive-lock"},
                                            {"fast-diff", "object-map"},
                                            {"journaling", "exclusive-lock"},
                                            {"deep-flatten", ""}}};

/// Features are only checked, because the image has its own already.
result<> check_features(std::string_view list) {
  const auto wanted = pieces(list, ',');
  for (const auto feature : wanted) {
    if (feature.empty()) continue;
    const auto known =
        std::find_if(kFeatures.begin(), kFeatures.end(), [&](const Feature& one) { return one.name == feature; });
    if (known == kFeatures.end()) return invalid("imageFeatures: invalid feature " + printable(feature));
    if (!known->needs.empty() && std::find(wanted.begin(), wanted.end(), known->needs) == wanted.end())
      return invalid("imageFeatures: feature " + std::string(feature) + " requires " + std::string(known->needs) +
                     " to be set");
  }
  return {};
}

/// With tryOtherMounters, an image that the kernel's client does not know is left to nbd.
Mounter as_able(const Attributes& attributes, Mounter plain) {
  if (plain == Mounter::nbd) return plain;
  return go_true(value(attributes, "tryOtherMounters")) ? Mounter::krbd_if_able : Mounter::krbd;
}

result<Mounter> mounter_of(const Attributes& attributes, const Mounters& mounters) {
  const std::string named = value(attributes, "mounter");
  if (!named.empty() && named != "rbd-nbd" && named != "rbd")
    return invalid("mounter '" + printable(named) + "' is not known: use rbd-nbd, or rbd for the kernel client");
  const Mounter own = named.empty() ? mounters.unnamed : named == "rbd" ? Mounter::krbd : Mounter::nbd;
  return as_able(attributes, mounters.instead.value_or(own));
}

bool read_only_by(Mounter mounter, const NbdOptions& nbd, std::string_view kernel) {
  return (mounter != Mounter::krbd && nbd.read_only) || (mounter != Mounter::nbd && kernel_read_only(kernel));
}

/// A list for the mounter that is not used is only checked.
result<> read_map_options(const Attributes& attributes, Parameters& into) {
  const auto map = split_map_options(value(attributes, "mapOptions"));
  if (!map) return with_context("mapOptions", map.error());
  auto options = parse_nbd_options(map->nbd);
  if (!options) return with_context("mapOptions", options.error());
  auto kernel = parse_kernel_options(map->krbd);
  if (!kernel) return with_context("mapOptions", kernel.error());
  into.read_only = read_only_by(into.mounter, *options, *kernel);
  const Mounter other = as_able(attributes, into.mounter == Mounter::nbd ? Mounter::krbd : Mounter::nbd);
  into.read_only_otherwise = read_only_by(other, *options, *kernel);
  if (into.mounter != Mounter::nbd) into.kernel.map = std::move(*kernel);
  if (into.mounter == Mounter::krbd) return {};
  into.serving = std::move(options->serving);
  for (auto& sentence : options->ignored) into.ignored.push_back("mapOptions: " + std::move(sentence));
  return {};
}

result<> read_unmap_options(const Attributes& attributes, Parameters& into) {
  const auto unmap = split_map_options(value(attributes, "unmapOptions"));
  if (!unmap) return with_context("unmapOptions", unmap.error());
  auto kernel = parse_kernel_options(unmap->krbd);
  if (!kernel) return with_context("unmapOptions", kernel.error());
  if (into.mounter != Mounter::nbd) into.kernel.unmap = std::move(*kernel);
  if (into.mounter != Mounter::krbd && !unmap->nbd.empty())
    into.ignored.emplace_back("unmapOptions: an nbd device is disconnected without options");
  into.stash.unmap_options = unmap->nbd;
  return {};
}

constexpr const char* kLogFolder = "/var/log/ceph";

/// The folder gets debug output. With one, librados writes a log file of its own.
result<> read_log_options(const Attributes& attributes, Parameters& into) {
  std::string folder = value(attributes, "cephLogDir");
  const std::string strategy = value(attributes, "cephLogStrategy");
  into.stash.log_dir = folder.empty() ? kLogFolder : folder;
  into.stash.log_strategy = strategy.empty() ? "remove" : strategy;
  auto& config = into.serving.config;
  const bool debugs =
      std::any_of(config.begin(), config.end(), [](const auto& option) { return option.first.starts_with("debug_"); });
  if (debugs) {
    if (folder.empty()) folder = kLogFolder;
    if (!folder.starts_with('/') || printable(folder) != folder || folder.find('$') != folder.npos ||
        (folder + "/").find("/../") != folder.npos)
      return invalid("cephLogDir is not an absolute path, or has '..', '$' or unprintable bytes");
    // Root makes a file there, and the folder's name comes from anybody who registers a volume with Nomad. A
    // PersistentVolume keeps its attributes for life, so the volume is served all the same.
    if (!(folder + "/").starts_with("/var/log/")) {
      into.ignored.push_back("cephLogDir: " + folder + " is not below /var/log and is ignored; the log is in " +
                             std::string(kLogFolder));
      folder = kLogFolder;
    }
    config["log_file"] = folder + "/corbd.$pid.$cctid.log";
  } else if (!folder.empty()) {
    into.ignored.emplace_back("cephLogDir: without a debug option in mapOptions, the agent's own log is the only one");
  }
  if (!strategy.empty()) into.ignored.emplace_back("cephLogStrategy: there is no log file for each volume");
  return {};
}

/// Reads encryptionDiscard, which is corbd's own. Any other word is refused, because a "yes" that does nothing would be
/// seen only when the pool is full.
result<bool> read_discard(const Attributes& attributes) {
  const auto place = attributes.find("encryptionDiscard");
  if (place == attributes.end() || place->second == "false") return false;
  if (place->second == "true") return true;
  return invalid("encryptionDiscard '" + printable(place->second) + "' is not allowed: use true or false");
}

result<> read_encryption(const Attributes& attributes, Parameters& into) {
  const auto discard = read_discard(attributes);
  if (!discard) return discard.error();
  if (!go_true(value(attributes, "encrypted"))) return {};
  const auto type = attributes.find("encryptionType");
  into.encryption_type = type == attributes.end() ? std::string(kBlockEncryption) : type->second;
  if (auto known = check_encryption_type(into.encryption_type); !known) return known;
  const std::string kms_id = value(attributes, "encryptionKMSID");
  into.kms_id = kms_id.empty() ? "default" : kms_id;
  into.luks = read_luks_options(attributes);
  into.luks.discard = *discard && into.encryption_type == kBlockEncryption;
  if (into.luks.discard && !into.luks.integrity.empty())
    return invalid(
        "encryptionDiscard 'true' and integrityMode exclude each other, because dm-integrity cannot discard: "
        "leave one of them out");
  return {};
}

struct PolicyName {
  OnDamage policy;
  std::string_view name;
};
constexpr std::array<PolicyName, 3> kPolicies{
    {{OnDamage::fsck, "fsck"}, {OnDamage::refuse, "refuse"}, {OnDamage::read_only, "read-only"}}};

result<> read_on_damage(const Attributes& attributes, Parameters& into) {
  const std::string named = value(attributes, kOnDamage);
  if (named.empty()) return {};
  const auto found = std::ranges::find(kPolicies, named, &PolicyName::name);
  if (found == kPolicies.end())
    return invalid(std::string(kOnDamage) + " '" + printable(named) + "' is not known: use fsck, refuse or read-only");
  into.on_damage = found->policy;
  return {};
}

}  // namespace

std::string_view name(OnDamage policy) { return std::ranges::find(kPolicies, policy, &PolicyName::policy)->name; }

bool go_true(std::string_view text) {
  constexpr std::array<std::string_view, 6> yes{"1", "t", "T", "true", "TRUE", "True"};
  return std::find(yes.begin(), yes.end(), text) != yes.end();
}

result<Parameters> read_parameters(const Attributes& attributes, const Mounters& mounters) {
  Parameters parameters;
  parameters.is_static = go_true(value(attributes, "staticVolume"));
  parameters.migrated = go_true(value(attributes, "migration"));
  const auto mounter = mounter_of(attributes, mounters);
  if (!mounter) return mounter.error();
  parameters.mounter = *mounter;
  if (parameters.is_static)
    if (auto checked = check_features(value(attributes, "imageFeatures")); !checked) return checked.error();
  if (auto read = read_map_options(attributes, parameters); !read) return read.error();
  if (auto read = read_unmap_options(attributes, parameters); !read) return read.error();
  if (auto read = read_log_options(attributes, parameters); !read) return read.error();
  if (auto read = read_encryption(attributes, parameters); !read) return read.error();
  if (auto read = read_on_damage(attributes, parameters); !read) return read.error();
  return parameters;
}

result<> check_encryption_type(std::string_view type) {
  if (type == kBlockEncryption || type == kFileEncryption) return {};
  return invalid("encryptionType '" + printable(type) + "' is not known: use block or file");
}

}  // namespace corbd::cephcsi
