#include <array>

#include "corbd/volume/planner.hpp"

namespace corbd::volume {

std::string_view name(Step::Kind kind) {
  constexpr std::array<std::string_view, 25> names{
      "look", "write_record", "fence", "open_image", "lock", "start_session", "kernel_connect", "kernel_reconfigure", "kernel_resize", "tune", "mark",
      "mkfs", "fsck", "mount", "unmark", "bind", "unbind", "umount", "disconnect", "stop_session", "close_image", "drop_record",
      "open_tombstone", "dismiss", "inherit"};
  return names.at(static_cast<std::size_t>(kind));
}

std::string_view name(Health health) {
  constexpr std::array<std::string_view, 8> names{"absent",   "staging", "staged", "reconnecting",
                                                  "unproven", "lost",    "failed", "unstaging"};
  return names.at(static_cast<std::size_t>(health));
}

std::string_view name(const Wish& wish) {
  constexpr std::array<std::string_view, 7> names{"stage", "unstage", "publish", "unpublish", "heal", "adopt", "fail"};
  return names.at(wish.index());
}

bool shows(const host::Mount& mount, const device::Seen& device) {
  if (mount.fstype == "devtmpfs") return mount.root == "/nbd" + std::to_string(device.index);
  return mount.dev_major == device.dev_major && mount.dev_minor == device.dev_minor;
}

std::string staging_target(const std::string& volume_id, const std::string& staging_path) { return staging_path + "/" + volume_id; }

}  // namespace corbd::volume
