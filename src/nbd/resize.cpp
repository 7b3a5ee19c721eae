#include "resize.hpp"

#include "corbd/nbd/devices.hpp"
#include "corbd/nbd/sysfs.hpp"
#include "netlink.hpp"

namespace corbd::nbd {

result<> perform(const Resize& asked) {
  // Another agent may have made it larger since, and a device never shrinks. The kernel compares the identifier.
  const auto seen = read_one(asked.sysfs, asked.index);
  if (seen && seen->size >= asked.bytes) return {};
  auto netlink = Netlink::open();
  if (!netlink) return netlink.error();
  return netlink->resize(asked.index, asked.backend, asked.bytes);
}

std::span<const helper::Known> helper_operations() { return helper::kKnown<Resize>; }

}  // namespace corbd::nbd
