#include "flags.hpp"

#include <sys/mount.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "corbd/host/values.hpp"

namespace corbd::host {
namespace {

struct Attribute {
  std::string_view name;
  std::uint64_t clear, set;
};

// Source: mount(8), "filesystem-independent mount options".
constexpr std::array kAttributes{
    Attribute{"ro", 0, MOUNT_ATTR_RDONLY},
    Attribute{"rw", MOUNT_ATTR_RDONLY, 0},
    Attribute{"nosuid", 0, MOUNT_ATTR_NOSUID},
    Attribute{"suid", MOUNT_ATTR_NOSUID, 0},
    Attribute{"nodev", 0, MOUNT_ATTR_NODEV},
    Attribute{"dev", MOUNT_ATTR_NODEV, 0},
    Attribute{"noexec", 0, MOUNT_ATTR_NOEXEC},
    Attribute{"exec", MOUNT_ATTR_NOEXEC, 0},
    Attribute{"nodiratime", 0, MOUNT_ATTR_NODIRATIME},
    Attribute{"diratime", MOUNT_ATTR_NODIRATIME, 0},
    Attribute{"nosymfollow", 0, MOUNT_ATTR_NOSYMFOLLOW},
    Attribute{"symfollow", MOUNT_ATTR_NOSYMFOLLOW, 0},
    Attribute{"noatime", MOUNT_ATTR__ATIME, MOUNT_ATTR_NOATIME},
    Attribute{"strictatime", MOUNT_ATTR__ATIME, MOUNT_ATTR_STRICTATIME},
    Attribute{"relatime", MOUNT_ATTR__ATIME, MOUNT_ATTR_RELATIME},
    Attribute{"atime", MOUNT_ATTR__ATIME, MOUNT_ATTR_RELATIME},
};

// Only mount(8) and similar programs use these. The kernel never sees them.
constexpr std::array<std::string_view, 12> kUserspace{"_netdev", "defaults", "auto",  "noauto", "nofail", "user",
                                                      "nouser",  "users",    "owner", "group",  "async",  "loud"};
constexpr std::array<std::string_view, 3> kUserspacePrefixes{"x-", "X-", "comment="};

constexpr std::array<std::string_view, 12> kRequestKinds{"bind",   "rbind",   "move",       "remount",
                                                         "shared", "rshared", "private",    "rprivate",
                                                         "slave",  "rslave",  "unbindable", "runbindable"};

bool contains(const auto& list, std::string_view wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

std::vector<std::string> split(std::string_view flags) {
  std::vector<std::string> parts(1);
  bool quoted = false;
  for (const char c : flags) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

bool is_for_programs(std::string_view part) {
  return contains(kUserspace, part) ||
         std::ranges::any_of(kUserspacePrefixes, [&](const auto& prefix) { return part.starts_with(prefix); });
}

MountOption take_apart(const std::string& part) {
  const auto equals = part.find('=');
  if (equals == std::string::npos) return {part, std::nullopt};
  return {part.substr(0, equals), part.substr(equals + 1)};
}

bool apply_attribute(MountFlags& to, std::string_view name) {
  const auto* known =
      std::find_if(kAttributes.begin(), kAttributes.end(), [&](const Attribute& a) { return a.name == name; });
  if (known == kAttributes.end()) return false;
  to.set = (to.set & ~known->clear) | known->set;
  to.clear = (to.clear & ~known->set) | known->clear;
  return true;
}

}  // namespace

result<MountFlags> parse_flags(const std::string& flags) {
  MountFlags parsed;
  for (const auto& part : split(flags)) {
    if (part.empty() || is_for_programs(part)) continue;
    if (contains(kRequestKinds, part))
      return Error{errc::invalid_argument, "mount flag " + part + " is not allowed for a volume"};
    if (!apply_attribute(parsed, part)) parsed.filesystem.push_back(take_apart(part));
  }
  if ((parsed.set & MOUNT_ATTR_RDONLY) != 0)
    parsed.filesystem.insert(parsed.filesystem.begin(), MountOption{"ro", std::nullopt});
  return parsed;
}

void add_default(MountFlags& flags, std::string_view option) {
  MountOption wanted = take_apart(std::string(option));
  if (std::ranges::find(flags.filesystem, wanted.key, &MountOption::key) == flags.filesystem.end())
    flags.filesystem.push_back(std::move(wanted));
}

std::string protections(const std::string& flags) {
  MountFlags all;
  for (const auto& part : split(flags)) apply_attribute(all, part);
  std::string held;
  for (const std::string_view name : {"nosuid", "nodev", "noexec"}) {
    MountFlags one;
    apply_attribute(one, name);
    if ((all.set & one.set) != 0) held += (held.empty() ? "" : ",") + std::string(name);
  }
  return held;
}

bool mounts_read_only(std::string_view flags) {
  bool read_only = false;
  for (const auto& part : split(flags))
    if (part == "ro" || part == "rw") read_only = part == "ro";
  return read_only;
}

}  // namespace corbd::host
