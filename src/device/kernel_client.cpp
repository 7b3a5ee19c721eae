#include "corbd/device/kernel_client.hpp"

namespace corbd::device {

std::vector<Seen> of_image(const std::vector<Mapped>& all, const image::Key& key) {
  std::vector<Seen> found;
  for (const auto& one : all) {
    const bool same = one.key.fsid == key.fsid && one.key.pool_id == key.pool_id && one.key.ns == key.ns &&
                      one.key.image_id == key.image_id;
    if (same && one.head == (key.snap_id == 0)) found.push_back(one.seen);
  }
  return found;
}

std::vector<Seen> of_name(const std::vector<Mapped>& all, const image::Name& name) {
  std::vector<Seen> found;
  for (const auto& one : all)
    if (one.head && one.name == name) found.push_back(one.seen);
  return found;
}

}  // namespace corbd::device
