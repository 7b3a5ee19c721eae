#include "corbd/host/mount_list.hpp"

#include "support/catch.hpp"

using namespace corbd;
using host::Mount;
using host::MountList;

namespace {

MountList::Row row(std::uint64_t id, std::uint64_t parent, const std::string& target, std::uint32_t minor,
                   const std::string& root = "/", const std::string& fstype = "ext4") {
  Mount mount;
  mount.id = id;
  mount.dev_major = 43;
  mount.dev_minor = minor;
  mount.root = root;
  mount.target = target;
  mount.fstype = fstype;
  return {std::move(mount), {parent, 0, 0}};
}

std::vector<std::uint64_t> places(const MountList::Found& found) {
  std::vector<std::uint64_t> all;
  for (const auto& [at, mount] : found) all.push_back(at);
  return all;
}

}  // namespace

TEST_CASE("a list of mounts finds by path, by device, by node and by folder, and forgets what was removed") {
  MountList list;
  list.put(0, row(1, 0, "/", 0));
  list.put(1, row(2, 1, "/a", 32));
  list.put(2, row(3, 1, "/ab", 64));
  list.put(3, row(4, 2, "/a", 64));
  list.put(4, row(5, 1, "/block/dev", 6, "/nbd2", "devtmpfs"));
  list.put(5, row(6, 1, "/block/other", 6, "/nbd21", "devtmpfs"));
  CHECK(places(list.at("/a")) == std::vector<std::uint64_t>{1, 3});
  CHECK(list.at("/none").empty());
  MountList::Found found;
  list.add_device(43, 64, found);
  CHECK(places(found) == std::vector<std::uint64_t>{2, 3});
  found.clear();
  list.add_node("/nbd2", found);
  CHECK(places(found) == std::vector<std::uint64_t>{4});
  CHECK(places(list.nodes("/nbd")) == std::vector<std::uint64_t>{4, 5});
  CHECK(list.has_below("/block"));
  CHECK_FALSE(list.has_below("/blo"));
  CHECK_FALSE(list.has_below("/a"));
  const MountList copy(list);
  for (const std::uint64_t at : {1u, 2u, 3u, 4u, 5u}) list.remove(at);
  CHECK(list.at("/a").empty());
  CHECK(list.nodes("/nbd").empty());
  CHECK_FALSE(list.has_below("/block"));
  found.clear();
  list.add_device(43, 64, found);
  CHECK(found.empty());
  CHECK(places(copy.at("/a")) == std::vector<std::uint64_t>{1, 3});
  CHECK(copy.at("/a").begin()->second != nullptr);
}

TEST_CASE("the place of a mount follows its parent, whichever was found first") {
  MountList list;
  list.put(1, row(3, 2, "/data/volume", 32));
  CHECK(list.rows().at(1).mount.place.path.empty());
  list.put(0, row(2, 1, "/data", 64, "/kubelet"));
  CHECK(list.rows().at(1).mount.place.path == "/kubelet/volume");
  CHECK(list.rows().at(1).mount.place.dev_minor == 64);
  list.remove(0);
  CHECK(list.rows().at(1).mount.place.path.empty());
}
