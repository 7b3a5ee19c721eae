#include "corbd/nbd/sysfs.hpp"

#include <fstream>

#include "corbd/nbd/devices.hpp"
#include "ground.hpp"
#include "resize.hpp"
#include "support/folder.hpp"
#include "support/loop.hpp"

namespace corbd::test {
namespace {

/// A tree as sysfs has it.
class Tree {
 public:
  Tree& file(const std::string& path, const std::string& text) {
    const auto full = std::filesystem::path(folder_.path()) / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
    return *this;
  }
  Tree& folder(const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(folder_.path()) / path);
    return *this;
  }
  Tree& device(unsigned index) {
    const std::string at = "block/nbd" + std::to_string(index) + "/";
    file(at + "dev", "43:" + std::to_string(32 * index))
        .file(at + "size", "2048")
        .file(at + "queue/io_timeout", "30000");
    return folder(at + "holders");
  }
  const std::string& root() const { return folder_.path(); }

 private:
  Folder folder_;
};

}  // namespace

TEST_CASE("a configured device is seen with everything the planner asks for") {
  Tree tree;
  tree.device(3)
      .file("block/nbd3/backend", "volume-3")
      .file("block/nbd3/pid", "42")
      .file("block/nbd3/queue/io_timeout", "1000");
  tree.file("block/nbd3/holders/dm-1/dm/name", "luks-rbd-volume-3")
      .file("block/nbd3/holders/dm-1/size", "1024")
      .file("block/nbd3/holders/dm-1/dev", "253:1");
  tree.folder("block/nbd3/nbd3p1/holders/dm-0");
  const auto all = nbd::read_inventory(tree.root());
  REQUIRE(all);
  REQUIRE(all->size() == 1);
  const auto& seen = all->front();
  CHECK(seen.index == 3);
  CHECK(seen.backend == "volume-3");
  CHECK(seen.size == 1u << 20);
  CHECK(seen.dev_major == 43);
  CHECK(seen.dev_minor == 96);
  CHECK(seen.io_timeout_ms == 1000);
  CHECK(seen.holders ==
        std::vector<device::UpperDevice>{{"dm-1", "luks-rbd-volume-3", 1u << 19, 253, 1}, {"dm-0", "", 0, 0, 0}});
}

TEST_CASE("a mapping above the mapping above a device is seen too") {
  Tree tree;
  tree.device(3).file("block/nbd3/backend", "volume-3").file("block/nbd3/pid", "42");
  const std::string inner = "block/nbd3/holders/dm-0/";
  tree.file(inner + "dm/name", "luks-rbd-volume-3_dif").file(inner + "size", "1024").file(inner + "dev", "253:0");
  tree.file(inner + "holders/dm-1/dm/name", "luks-rbd-volume-3")
      .file(inner + "holders/dm-1/size", "1024")
      .file(inner + "holders/dm-1/dev", "253:1");
  const auto all = nbd::read_inventory(tree.root()).value();
  REQUIRE(all.size() == 1);
  CHECK(all.front().holders == std::vector<device::UpperDevice>{{"dm-0", "luks-rbd-volume-3_dif", 1u << 19, 253, 0},
                                                                {"dm-1", "luks-rbd-volume-3", 1u << 19, 253, 1}});
}

TEST_CASE("the answered requests of a busy device are read from sysfs, and an idle device costs no further read",
          "[failure:168]") {
  constexpr const char* stat = "10 1 80 5 20 2 160 9 2 14 14 30 0 240 1 40 3";  // reads, writes, discards, flushes
  Tree tree;
  tree.device(3).file("block/nbd3/pid", "42").file("block/nbd3/stat", stat).file("block/nbd3/inflight", "0 2");
  tree.device(4).file("block/nbd4/pid", "43").file("block/nbd4/stat", stat).file("block/nbd4/inflight", "0 0");
  const auto all = nbd::read_inventory(tree.root()).value();
  REQUIRE(all.size() == 2);
  CHECK(all[0].waiting == 2);
  CHECK(all[0].completed == 100);
  CHECK(all[1].waiting == 0);
  CHECK(all[1].completed == 0);
}

TEST_CASE(
    "a new device gets the lowest number that is free and not to be avoided, also one whose device is there "
    "unconfigured",
    "[failure:113][rule:21]") {
  Tree tree;
  tree.device(0).file("block/nbd0/backend", "a").file("block/nbd0/pid", "1");
  tree.device(2).file("block/nbd2/backend", "c").file("block/nbd2/pid", "1");
  tree.device(3).file("block/nbd3/pid", "1");  // of a tool that gives no identifier
  tree.device(4);                              // disconnected
  using Numbers = std::vector<nbd::Number>;
  CHECK(nbd::free_numbers(tree.root(), {}, 3).value() == Numbers{{1, false}, {4, true}, {5, false}});
  CHECK(nbd::free_numbers(tree.root(), {0, 1}, 2).value() == Numbers{{4, true}, {5, false}});
  CHECK(nbd::free_numbers(tree.root(), {1, 4}, 1).value() == Numbers{{5, false}});
}

TEST_CASE("a device that is not configured is not seen, nor is anything that is no nbd") {
  Tree tree;
  tree.device(0).folder("block/sda").folder("block/nbdx").file("block/nbd7p1/backend", "x");
  const auto all = nbd::read_inventory(tree.root());
  REQUIRE(all);
  CHECK(all->empty());
}

TEST_CASE("a device without an identifier counts as another program's", "[failure:29]") {
  Tree tree;
  tree.device(1).file("block/nbd1/pid", "42");
  const auto all = nbd::read_inventory(tree.root());
  REQUIRE(all);
  REQUIRE(all->size() == 1);
  CHECK(all->front().backend.empty());
}

TEST_CASE("devices are listed by index") {
  Tree tree;
  for (const unsigned index : {10u, 2u, 1u})
    tree.device(index).file("block/nbd" + std::to_string(index) + "/backend", "v");
  const auto all = nbd::read_inventory(tree.root());
  REQUIRE(all);
  REQUIRE(all->size() == 3);
  CHECK(all->at(0).index == 1);
  CHECK(all->at(1).index == 2);
  CHECK(all->at(2).index == 10);
}

TEST_CASE("an unreadable sysfs is an error, not an empty node") {
  const auto all = nbd::read_inventory("/nonexistent");
  REQUIRE_FALSE(all);
  CHECK(all.error().code == errc::unavailable);
}

TEST_CASE("without the nbd driver the devices are not ready, and the reason says what to do", "[failure:30]") {
  asio::io_context control;
  const auto clock = make_real_clock(control.get_executor());
  Tree tree;
  nbd::Config config;
  config.sysfs = tree.root();
  const auto devices = nbd::make_devices(control.get_executor(), *clock, std::move(config));
  const auto ready = devices->ready();
  REQUIRE_FALSE(ready);
  CHECK(ready.error().code == errc::failed_precondition);
  CHECK_THAT(ready.error().text, ContainsSubstring("modprobe nbd"));
  tree.folder("module/nbd");
  CHECK(devices->ready());
}

TEST_CASE("the identifier of one device is read without reading the others") {
  Tree tree;
  tree.device(1).file("block/nbd1/backend", "one").device(2);
  Loop loop;
  nbd::Config config;
  config.sysfs = tree.root();
  const auto devices = nbd::make_devices(loop.control(), loop.clock, std::move(config));
  CHECK(devices->backend_of(1) == "one");
  CHECK(devices->backend_of(2).empty());
  CHECK(devices->backend_of(3).empty());
}

TEST_CASE("the devices with one identifier are found as they are now, and one that lost it is not") {
  Tree tree;
  tree.device(1).file("block/nbd1/backend", "other").device(2).file("block/nbd2/backend", "mine");
  Loop loop;
  nbd::Config config;
  config.sysfs = tree.root();
  const auto devices = nbd::make_devices(loop.control(), loop.clock, std::move(config));
  auto found = devices->find("mine");
  REQUIRE(found);
  REQUIRE(found->size() == 1);
  CHECK(found->front().index == 2);
  tree.file("block/nbd2/queue/io_timeout", "1000");
  CHECK(devices->find("mine")->front().io_timeout_ms == 1000);
  tree.file("block/nbd2/backend", "another's now");
  CHECK(devices->find("mine")->empty());
  CHECK(devices->find("nobody's")->empty());
}

TEST_CASE("a resize that comes late does not make a device smaller that another one made larger", "[failure:162]") {
  Tree tree;
  tree.device(1).file("block/nbd1/backend", "mine");
  // Without a driver any command would be an error.
  CHECK(nbd::perform(nbd::Resize{1, "mine", 4096, tree.root()}));
}

TEST_CASE("a number that refuses writes is seen, whether it is in use or free") {
  Tree tree;
  tree.device(0).file("block/nbd0/pid", "42").file("block/nbd0/ro", "1");
  tree.device(1).file("block/nbd1/pid", "42").file("block/nbd1/ro", "0");
  tree.device(2).file("block/nbd2/ro", "1");
  tree.device(3).file("block/nbd3/ro", "0");
  const auto all = nbd::read_inventory(tree.root()).value();
  REQUIRE(all.size() == 2);
  CHECK(all[0].read_only);
  CHECK_FALSE(all[1].read_only);
  CHECK(nbd::read_only_numbers(tree.root()) == std::vector<std::uint32_t>{2});
}

TEST_CASE("a number that takes WRITE_ZEROES is seen, whether it is in use or free") {
  Tree tree;
  tree.device(0).file("block/nbd0/pid", "42").file("block/nbd0/queue/write_zeroes_max_bytes", "4294966784");
  tree.device(1).file("block/nbd1/pid", "42").file("block/nbd1/queue/write_zeroes_max_bytes", "0");
  tree.device(2).file("block/nbd2/queue/write_zeroes_max_bytes", "4294966784");
  // Before Linux 4.10 there is no such file.
  tree.device(3);
  CHECK(nbd::zeroing_numbers(tree.root()) == std::vector<std::uint32_t>{0, 2});
}

TEST_CASE("a logical volume above a device is told from other mappings, and its name gives the volume group") {
  Tree tree;
  tree.device(3).file("block/nbd3/pid", "42");
  const std::string at = "block/nbd3/nbd3p2/holders/dm-0/dm/";
  tree.file(at + "name", "vg--1-root").file(at + "uuid", "LVM-abc");
  const auto all = nbd::read_inventory(tree.root()).value();
  REQUIRE(all.front().holders.size() == 1);
  CHECK(all.front().holders.front().maker == device::Maker::lvm);
  CHECK_FALSE(all.front().holders.front().read_only);
  CHECK(device::maker_of("mpath-3600") == device::Maker::multipath);
  CHECK(device::maker_of("part1-mpath-3600") == device::Maker::multipath);
  CHECK(device::maker_of("CRYPT-LUKS2-12-luks") == device::Maker::crypt);
  CHECK(device::maker_of("") == device::Maker::other);
  CHECK(device::volume_group("vg--1-root") == "vg-1");
  CHECK(device::volume_group("data-lv") == "data");
  CHECK(device::volume_group("plain") == "plain");
}

}  // namespace corbd::test
