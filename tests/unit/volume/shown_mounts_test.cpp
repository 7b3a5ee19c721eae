#include "volume.hpp"

#include "support/catch.hpp"

using namespace corbd;

TEST_CASE("the mounts that show a device are those that a walk over all mounts would find") {
  constexpr const char* id = "volume";
  device::Seen plain, encrypted;
  plain.index = 3;
  plain.dev_major = 43;
  plain.dev_minor = 96;
  encrypted = plain;
  device::UpperDevice mapping;
  mapping.name = "dm-0";
  mapping.mapping = plan::mapping_name(id);
  mapping.dev_major = 253;
  encrypted.holders.push_back(mapping);
  const std::vector<std::string> roots{"/", "/nbd3", "/nbd33", "/dm-0", "/mapper/" + mapping.mapping, "/mapper/other"};
  std::vector<host::Mount> mounts;
  for (const char* fstype : {"ext4", "devtmpfs"})
    for (const std::uint32_t major : {43u, 253u, 8u})
      for (const std::uint32_t minor : {0u, 96u})
        for (const auto& root : roots) {
          host::Mount mount;
          mount.fstype = fstype;
          mount.dev_major = major;
          mount.dev_minor = minor;
          mount.root = root;
          mounts.push_back(std::move(mount));
        }
  const host::MountList list(mounts);
  for (const auto& device : {plain, encrypted}) {
    host::MountList::Found found;
    volume::add_shown(list, device, id, found);
    std::size_t shown = 0;
    for (const auto& [at, row] : list.rows()) {
      const bool shows = plan::shows(row.mount, device, id);
      CHECK(found.contains(at) == shows);
      shown += shows ? 1 : 0;
    }
    CHECK(shown > 0);
    CHECK(shown < mounts.size());
  }
}
