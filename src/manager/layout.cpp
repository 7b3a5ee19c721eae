#include "layout.hpp"

#include <algorithm>

#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "corbd/manager/manager.hpp"

namespace corbd::manager {
namespace {

constexpr std::size_t kLongest = 64, kShown = 48, kHash = 12;

bool harmless(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

std::string short_hash(std::string_view text) { return sha256_hex(text).substr(0, kHash); }

}  // namespace

std::string folder_name(std::string_view name) {
  // No harmless name contains '~', so no such name is taken for a hashed one.
  if (!name.empty() && name.size() <= kLongest && name.front() != '.' && std::ranges::all_of(name, harmless))
    return std::string(name);
  std::string shown(name.substr(0, kShown));
  for (char& c : shown)
    if (!harmless(c)) c = '_';
  if (shown.starts_with('.')) shown.front() = '_';
  return shown + "~" + short_hash(name);
}

std::string folder_name(const Usage& usage) {
  std::string mode = lower(usage.access_mode);
  std::ranges::replace(mode, '_', '-');
  const bool block = usage.attachment == AccessType::block;
  std::string made =
      std::string(usage.read_only ? "ro-" : "rw-") + (block ? "block-device-" : "file-system-") + folder_name(mode);
  if (usage.fstype.empty() && usage.mount_options.empty()) return made;
  std::string rest = usage.fstype;
  for (const auto& option : usage.mount_options) rest += '\0' + option;
  return made + "~" + short_hash(rest);
}

std::string staging_path(const std::string& root, const PluginVolume& volume, const Usage& usage) {
  return root + "/staging/" + folder_name(volume.space) + "/" + folder_name(volume.name) + "/" + folder_name(usage);
}

std::string default_target(const std::string& root, const Mount& mount) {
  return root + "/per-alloc/" + folder_name(mount.user) + "/" + folder_name(mount.volume.name) + "/" +
         folder_name(mount.usage);
}

}  // namespace corbd::manager
