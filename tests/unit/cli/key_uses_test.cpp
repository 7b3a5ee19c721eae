#include "key_uses.hpp"

#include <boost/json/serialize.hpp>

#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::cli;

namespace {

v1::CephKey key(const std::string& user, const std::string& fingerprint) {
  v1::CephKey made;
  made.set_user(user);
  made.set_fingerprint(fingerprint);
  made.set_type("aes");
  made.set_made_at_ms(1622446560000);
  return made;
}

v1::Volume& add(v1::ListVolumesResponse& to, const std::string& id) {
  auto& made = *to.add_volumes();
  made.set_id(id);
  made.set_cluster_id("prod");
  made.set_device_path("/dev/nbd" + id);
  return made;
}

/// Two volumes of the user "old", one of which is to have "new", and one of "new".
v1::ListVolumesResponse rotating() {
  v1::ListVolumesResponse all;
  for (const char* id : {"1", "2"}) *add(all, id).mutable_key() = key("old", "aaaaaaaaaaaa");
  *all.mutable_volumes(1)->mutable_next_key() = key("new", "bbbbbbbbbbbb");
  all.mutable_volumes(1)->set_why_not_next_key("no caps");
  *add(all, "3").mutable_key() = key("new", "bbbbbbbbbbbb");
  return all;
}

}  // namespace

TEST_CASE("the table of keys counts the devices of each user and key, and names the volumes that are to have others") {
  CHECK(keys_table(key_uses(rotating())) ==
        "CLUSTER   USER         KEY            TYPE   MADE                   DEVICES\n"
        "prod      client.new   bbbbbbbbbbbb   aes    2021-05-31T07:36:00Z   1\n"
        "prod      client.old   aaaaaaaaaaaa   aes    2021-05-31T07:36:00Z   2\n"
        "\n"
        "VOLUME   DEVICE      HAS                       IS-TO-HAVE                WHY-NOT-YET\n"
        "2        /dev/nbd2   client.old/aaaaaaaaaaaa   client.new/bbbbbbbbbbbb   no caps\n");
}

TEST_CASE("a volume whose Secret could not be read is named with the reason") {
  v1::ListVolumesResponse all;
  auto& volume = add(all, "1");
  *volume.mutable_key() = key("old", "aaaaaaaaaaaa");
  volume.set_why_not_next_key("Secret a/b: forbidden");
  const auto uses = key_uses(all);
  REQUIRE(uses.moving.size() == 1);
  CHECK_THAT(keys_table(uses), ContainsSubstring("Secret a/b: forbidden"));
}

TEST_CASE("a user is needed while a volume of the node has it, is to have it, or may need it") {
  auto all = rotating();
  CHECK(judge_user(key_uses(all), "old").text == "client.old is needed on this node, by 1, 2");
  CHECK(judge_user(key_uses(all), "new").text == "client.new is needed on this node, by 2, 3");
  CHECK(judge_user(key_uses(all), "other").text == "nothing on this node needs client.other");
  CHECK_FALSE(judge_user(key_uses(all), "other").needed);
  all.mutable_volumes()->DeleteSubrange(0, 2);
  CHECK_FALSE(judge_user(key_uses(all), "old").needed);
  all.mutable_volumes(0)->add_other_users("old");
  CHECK(judge_user(key_uses(all), "old").needed);
}

TEST_CASE("every user may be needed while the user of a device is not known, or devices could not be listed") {
  v1::ListVolumesResponse all;
  std::string named;
  SECTION("a volume that another program serves") {
    add(all, "1");
    named = "/dev/nbd1";
  }
  SECTION("a device without a record") {
    auto& device = *all.add_unclaimed();
    device.set_device_path("/dev/nbd7");
    named = "/dev/nbd7";
  }
  SECTION("a device of the kernel's client whose user the kernel does not tell") {
    all.add_kernel_devices()->set_device_path("/dev/rbd0");
    named = "/dev/rbd0";
  }
  SECTION("a list that could not be read") {
    all.add_not_read("too many open files");
    named = "too many open files";
  }
  const auto verdict = judge_user(key_uses(all), "old");
  CHECK(verdict.needed);
  CHECK_THAT(verdict.text, ContainsSubstring(named));
}

TEST_CASE("the user of a device of the kernel's client is needed, whoever mapped it") {
  v1::ListVolumesResponse all;
  auto& device = *all.add_kernel_devices();
  device.set_device_path("/dev/rbd0");
  device.set_user("old");
  CHECK(judge_user(key_uses(all), "old").needed);
  CHECK_FALSE(judge_user(key_uses(all), "other").needed);
  CHECK(key_uses(all).keys.size() == 1);
  auto& volume = add(all, "1");
  volume.set_device_path("/dev/rbd0");
  *volume.mutable_key() = key("new", "");
  CHECK(judge_user(key_uses(all), "old").needed);
  CHECK(key_uses(all).keys.size() == 1);
}

TEST_CASE("the keys as JSON have each volume's ID, and the reason why one has not moved") {
  CHECK(boost::json::serialize(keys_document(key_uses(rotating()))) ==
        R"({"keys":[{"user":"new","fingerprint":"bbbbbbbbbbbb","type":"aes","made_at_ms":1622446560000,)"
        R"("cluster_id":"prod","used_by":["3"]},{"user":"old","fingerprint":"aaaaaaaaaaaa","type":"aes",)"
        R"("made_at_ms":1622446560000,"cluster_id":"prod","used_by":["1","2"]}],"moving":[{"volume_id":"2",)"
        R"("device_path":"/dev/nbd2","key":{"user":"old","fingerprint":"aaaaaaaaaaaa","type":"aes",)"
        R"("made_at_ms":1622446560000},"next_key":{"user":"new","fingerprint":"bbbbbbbbbbbb","type":"aes",)"
        R"("made_at_ms":1622446560000},"why_not_next_key":"no caps"}],"unknown":[]})");
}
