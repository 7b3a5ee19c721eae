#include <algorithm>
#include <array>

#include "corbd/volume/planner.hpp"

namespace corbd::volume {

std::string_view name(Step::Kind kind) {
  constexpr std::array<std::string_view, 32> names{
      "look", "write_record", "fence", "open_image", "lock", "start_session", "kernel_connect", "kernel_reconfigure", "kernel_resize", "tune", "mark",
      "mkfs", "fsck", "mount", "grow", "unmark", "bind", "unbind", "umount", "disconnect", "stop_session", "close_image", "drop_record",
      "open_tombstone", "dismiss", "inherit",
      "write_stash",
      "drop_stash",
      "note",
      "trim",
      "map_krbd",
      "unmap_krbd"};
  return names.at(static_cast<std::size_t>(kind));
}

std::string_view name(Health health) {
  constexpr std::array<std::string_view, 8> names{"absent",   "staging", "staged", "reconnecting",
                                                  "unproven", "lost",    "failed", "unstaging"};
  return names.at(static_cast<std::size_t>(health));
}

std::string_view name(const Wish& wish) {
  constexpr std::array<std::string_view, 9> names{"stage", "unstage", "publish", "unpublish", "heal", "adopt", "fail", "expand", "trim"};
  return names.at(wish.index());
}

bool shows(const host::Mount& mount, const device::Seen& device) {
  if (mount.fstype == "devtmpfs") return mount.root == "/" + device::name(device.kind, device.index);
  return mount.dev_major == device.dev_major && mount.dev_minor == device.dev_minor;
}

bool wants_read_only(const Capability& capability) {
  return capability.read_only || ("," + capability.mount_flags + ",").find(",ro,") != std::string::npos;
}

bool is_at(const Record& record, const std::string& path) {
  const auto staged = [&](const Staging& staging) { return staging.path == path || staging_target(record.volume_id, staging.path) == path; };
  const auto published = [&](const Publish& publish) { return publish.target == path; };
  return std::ranges::any_of(record.stagings, staged) || std::ranges::any_of(record.publishes, published);
}

std::string staging_target(const std::string& volume_id, const std::string& staging_path) { return staging_path + "/" + volume_id; }

}  // namespace corbd::volume
