#include "device.hpp"

#include <filesystem>

#include "corbd/core/sysfs.hpp"
#include "corbd/device/values.hpp"
#include "corbd/host/mountinfo.hpp"

namespace corbd::manager {

namespace fs = std::filesystem;

std::string death_of(const std::string& device, const std::string& sys) {
  // For links of /dev/mapper the number was found above; a name without a number is not judged.
  const fs::path folder = sys + "/class/block/" + device;
  const auto* kind = device::traits_of(device);
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) {
    const bool certain = kind != nullptr || device.starts_with("dm-");
    return certain ? "the device " + device + " is gone" : "";
  }
  if (sysfs::attribute(folder / "size").value_or("") == "0") return "the device " + device + " was disconnected";
  if (kind != nullptr && kind->shows_pid && !fs::exists(folder / "pid", ignored) &&
      !fs::exists(folder / "partition", ignored))
    return "the device " + device + " was disconnected";
  for (const auto& below : sysfs::names_in(folder / "slaves"))
    if (auto why = death_of(below, sys); !why.empty()) return why;
  return "";
}

std::string death_of(const host::Mount& mount, const std::string& sys) {
  const std::string device = host::device_of(mount, sys);
  if (!device.empty())
    if (auto why = death_of(device, sys); !why.empty()) return why;
  if (mount.filesystem_read_only && !mount.read_only)
    return "its filesystem stopped writing after an error, or was remounted read-only";
  return "";
}

}  // namespace corbd::manager
