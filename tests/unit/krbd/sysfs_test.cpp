#include "corbd/krbd/sysfs.hpp"

#include <cerrno>
#include <fstream>

#include "corbd/core/sysfs.hpp"
#include "corbd/krbd/kernel_client.hpp"
#include "kernel_key.hpp"
#include "operations.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;

namespace {

/// A folder with sysfs's files.
struct Tree {
  test::Folder folder;
  const std::string& root() const { return folder.path(); }
  void file(const std::string& path, const std::string& text) const {
    const auto full = std::filesystem::path(root()) / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  }
  std::string text(const std::string& path) const { return sysfs::attribute(root() + "/" + path).value_or("(none)"); }
  void device(int index, const std::string& image_id, const std::string& snap = "-") const {
    const std::string at = "bus/rbd/devices/" + std::to_string(index) + "/";
    for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"pool", "pool"},
                                                                                      {"pool_id", "2"},
                                                                                      {"pool_ns", "tenant"},
                                                                                      {"name", "image-1"},
                                                                                      {"image_id", image_id},
                                                                                      {"current_snap", snap},
                                                                                      {"client_addr", "10.0.0.1:0/42"},
                                                                                      {"cluster_fsid", "f"},
                                                                                      {"size", "1048576"},
                                                                                      {"major", "252"},
                                                                                      {"minor", "16"}})
      file(at + name, value);
  }
};

device::MapArgs args() {
  device::MapArgs made;
  made.monitors = {"10.0.0.1:6789"};
  made.user = "node";
  made.key = Secret("AQBcanarycanarycanary==");
  made.name = {"pool", "tenant", "image-1"};
  made.image = {"f", 2, "tenant", "id-1", 0};
  return made;
}

}  // namespace

TEST_CASE("the inventory shows a device of the kernel client with its image's identity and its client's address") {
  Tree tree;
  tree.device(1, "id-1");
  tree.file("block/rbd1/inflight", "1 2");
  std::filesystem::create_directories(tree.root() + "/block/rbd1/rbd1p1/holders/dm-0");
  const auto all = krbd::read_inventory(tree.root());
  REQUIRE(all);
  REQUIRE(all->size() == 1);
  const auto& mapped = all->front();
  CHECK((mapped.key == image::Key{"f", 2, "tenant", "id-1", 0}));
  CHECK(mapped.name.text() == "pool/tenant/image-1");
  CHECK(mapped.head);
  CHECK(device::path(mapped.seen) == "/dev/rbd1");
  CHECK(mapped.seen.client == "10.0.0.1:0/42");
  CHECK(mapped.seen.user.empty());
  CHECK(mapped.seen.size == 1u << 20);
  CHECK(mapped.seen.dev_major == 252);
  CHECK(mapped.seen.dev_minor == 16);
  CHECK(mapped.seen.waiting == 3);
  REQUIRE(mapped.seen.holders.size() == 1);
  CHECK(mapped.seen.holders.front().name == "dm-0");
}

TEST_CASE("the inventory shows the Ceph user of a device of the kernel client, if the kernel tells") {
  Tree tree;
  tree.device(1, "id-1");
  const auto user = [&](const std::string& config) {
    tree.file("bus/rbd/devices/1/config_info", config);
    return krbd::read_inventory(tree.root())->front().seen.user;
  };
  CHECK(user("10.0.0.1:6789,10.0.0.2:6789 name=csi-rbd-node,key=client.csi-rbd-node pool image-1 -") == "csi-rbd-node");
  CHECK(user("[2001:db8::1]:6789 ms_mode=secure,name=node.1 name=image - -") == "node.1");
  CHECK(user("10.0.0.1:6789 key=client.a name=image name=image -").empty());
  CHECK(user("10.0.0.1:6789").empty());
  CHECK(user("").empty());
}

TEST_CASE("a device is found by its image's identity, not by a name that another image may have") {
  Tree tree;
  tree.device(1, "id-1");
  tree.device(2, "id-2");
  tree.device(3, "id-1", "snap");
  const auto all = *krbd::read_inventory(tree.root());
  const auto found = device::of_image(all, args().image);
  REQUIRE(found.size() == 1);
  CHECK(found.front().index == 1);
  auto elsewhere = args().image;
  elsewhere.fsid = "g";
  CHECK(device::of_image(all, elsewhere).empty());
  CHECK(device::of_name(all, args().name).size() == 2);
}

TEST_CASE("without the rbd module there is no device, and the error for its features names `modprobe rbd`",
          "[failure:110]") {
  Tree tree;
  CHECK(krbd::read_inventory(tree.root())->empty());
  CHECK_THAT(krbd::read_abilities(tree.root(), "7.0.0").error().text, ContainsSubstring("modprobe rbd"));
  tree.file("bus/rbd/supported_features", "0x1bf");
  CHECK(krbd::read_abilities(tree.root(), "7.0.0")->features == 0x1bf);
}

TEST_CASE("a map request reaches the helper unchanged") {
  auto made = args();
  made.read_only = true;
  made.options = "queue_depth=64";
  const auto request = helper::request_of(krbd::Map{"/sys", made}, {});
  const auto back = fields::from_json<krbd::Map>(request.body, "map").value().args;
  CHECK(back.monitors == made.monitors);
  CHECK(back.user == made.user);
  CHECK(back.key == made.key);
  CHECK(back.name.text() == made.name.text());
  CHECK(back.image == made.image);
  CHECK(back.read_only);
  CHECK(back.options == made.options);
}

TEST_CASE("a device is unmapped by its number, through remove_single_major if the kernel has that file") {
  Tree tree;
  tree.file("bus/rbd/remove", "");
  const bool newer = GENERATE(true, false);
  if (newer) tree.file("bus/rbd/remove_single_major", "");
  REQUIRE(krbd::perform(krbd::Unmap{tree.root(), 3, "force"}));
  CHECK(tree.text(newer ? "bus/rbd/remove_single_major" : "bus/rbd/remove") == "3 force");
}

TEST_CASE("unmapping a device succeeds in a kernel without the rbd module") {
  Tree tree;
  CHECK(krbd::perform(krbd::Unmap{tree.root(), 3, ""}));
}

TEST_CASE("the kernel client knows keys of type aes256k from Linux 7.0 on") {
  Tree tree;
  tree.file("bus/rbd/supported_features", "0x1bf");
  const auto knows = [&](const char* release) { return krbd::read_abilities(tree.root(), release)->aes256k; };
  CHECK(knows("7.0.0"));
  CHECK(knows("10.2.0-rc1"));
  CHECK_FALSE(knows("6.19.14-amd64"));
  CHECK_FALSE(knows("seven"));
}

TEST_CASE("a malformed Ceph key is refused, and the error does not repeat it") {
  for (const std::string key : {"", "no base64!", "AQB", "canary==x"}) {
    const auto added = krbd::KernelKey::add("client.node", Secret(key));
    REQUIRE_FALSE(added);
    CHECK(added.error().code == errc::invalid_argument);
    if (!key.empty()) CHECK_THAT(added.error().text, !ContainsSubstring(key));
  }
}

TEST_CASE("a key type unknown to the kernel is told apart from an invalid key, and the error suggests rbd-nbd") {
  using namespace std::string_literals;
  const auto key = [](char type) { return type + "\0timetime\x03\0abc"s; };
  for (const int failed : {EINVAL, 524}) {
    const auto error = krbd::not_added("client.node", key(2), failed);
    CHECK(error.code == errc::failed_precondition);
    CHECK_THAT(error.text, ContainsSubstring("aes256k") && ContainsSubstring("rbd-nbd"));
  }
  CHECK_THAT(krbd::not_added("client.node", key(3), EINVAL).text, ContainsSubstring("number 3"));
  for (const auto& wrong : {key(1), key(2) + "d", "\2\0"s})
    CHECK(krbd::not_added("client.node", wrong, EINVAL).code == errc::invalid_argument);
}
