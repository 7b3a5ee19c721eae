#include "messages.hpp"

#include <fstream>

#include "support/catch.hpp"
#include "support/places.hpp"

namespace corbd::test {
using namespace handover;

TEST_CASE("the messages of a handover are these, byte for byte, in version 2 of its protocol") {
  CHECK(pack(Hello{2, {"0.1.0", 1, "2:3"}}) == R"({"protocol":2,"version":"0.1.0","records":1,"state":"2:3"})");
  CHECK(pack(Hello{2, {"0.1.0", 1, "2:3", true}}) ==
        R"({"protocol":2,"version":"0.1.0","records":1,"state":"2:3","keeper":true})");
  CHECK(pack(Hello{2, {"0.1.0", 1, "2:3", false, true}}) ==
        R"({"protocol":2,"version":"0.1.0","records":1,"state":"2:3","listeners":true})");
  CHECK(pack(Hello{2, {"0.1.0", 1, "2:3", false, false, "node-1", "rbd.csi.ceph.com"}}) ==
        R"({"protocol":2,"version":"0.1.0","records":1,"state":"2:3","node":"node-1","driver":"rbd.csi.ceph.com"})");
  CHECK(pack_answer(std::nullopt) == R"({"answer":"yes"})");
  CHECK(pack_answer("too old") == R"({"answer":"no","why":"too old"})");
  CHECK(pack(PeerMessage{PeerMessage::What::ready}) == R"({"ready":true})");
  CHECK(pack(PeerMessage{PeerMessage::What::ready, {}, 0, {"a", "b"}}) == R"({"ready":true,"cold":["a","b"]})");
  CHECK(pack(PeerMessage{PeerMessage::What::begins}) == R"({"begins":true})");
  CHECK(pack(PeerMessage{PeerMessage::What::loaded}) == R"({"loaded":true})");
  CHECK(pack(PeerMessage{PeerMessage::What::lock}) == R"({"lock":true})");
  CHECK(pack(PeerMessage{.what = PeerMessage::What::listener, .registered = true}) ==
        R"({"listener":{"registered":true}})");
  CHECK(pack(PeerMessage{PeerMessage::What::link, "b", 7}) == R"({"link":{"volume":"b","device":7}})");
  CHECK(pack(PeerMessage{PeerMessage::What::served, {}, 7}) == R"({"served":7})");
  const PeerMessage other{.what = PeerMessage::What::link, .volume_id = "b", .device = 7, .kind = device::Kind::krbd};
  CHECK(pack(other) == R"({"link":{"volume":"b","device":7,"kind":"krbd"}})");
  CHECK_FALSE(unpack_message(pack(other)));  // the kernel serves it
  CHECK(*unpack_message(R"({"link":{"volume":"b","device":7,"kind":"nbd"}})") ==
        PeerMessage{PeerMessage::What::link, "b", 7});
  CHECK(pack(PeerMessage{PeerMessage::What::end}) == R"({"end":true})");
  CHECK(kProtocol == 2);
}

// Printed by 0.1.0's pack() and pack_answer(). The file never changes (docs/compatibility.md).
TEST_CASE("every message of 0.1.0 is understood, and an agent of today is asked and answered in its words") {
  std::ifstream golden(tests_folder() + "/unit/handover/golden/messages-0.1.0.jsonl");
  std::string line;
  REQUIRE(std::getline(golden, line));
  const auto hello = unpack_hello(line);
  REQUIRE(hello);
  CHECK(pack(*hello) == line);
  CHECK_FALSE(refusal(*hello, {"0.1.0", 2, "2:3"}));
  REQUIRE(std::getline(golden, line));
  CHECK(unpack_answer(line));
  CHECK(pack_answer(std::nullopt) == line);
  REQUIRE(std::getline(golden, line));
  CHECK(unpack_answer(line).error().code == errc::failed_precondition);
  CHECK(pack_answer("too old") == line);
  int words = 0;
  for (; std::getline(golden, line); ++words) {
    INFO(line);
    const auto word = unpack_message(line);
    REQUIRE(word);
    CHECK(pack(*word) == line);
  }
  CHECK(words == 9);
}

TEST_CASE("a message holds as many volume IDs as fit, however long they are") {
  const std::vector<std::string> cold(400, std::string(4000, 'v'));
  const std::string message = pack(PeerMessage{PeerMessage::What::ready, {}, 0, cold});
  CHECK(message.size() < (64u << 10));
  const auto word = unpack_message(message);
  REQUIRE(word);
  CHECK(word->unopened_images.size() == 12);
}

TEST_CASE("what one agent packs, the other unpacks") {
  const auto hello = unpack_hello(pack(Hello{1, {"0.1.0 (abc)", 3, "2:3"}}));
  REQUIRE(hello);
  CHECK(hello->protocol == 1);
  CHECK(hello->side.version == "0.1.0 (abc)");
  CHECK(hello->side.records == 3);
  CHECK_FALSE(hello->side.kept);
  CHECK(unpack_hello(pack(Hello{2, {"0.1.0", 1, "2:3", true}}))->side.kept);
  CHECK(unpack_hello(pack(Hello{2, {"0.1.0", 1, "2:3", false, true}}))->side.listens);
  CHECK_FALSE(hello->side.accepts_refused);
  Side accepting{"0.2.0", 2, "2:3"};
  accepting.accepts_refused = true;
  CHECK(unpack_hello(pack(Hello{2, accepting}))->side.accepts_refused);
  using What = PeerMessage::What;
  for (const auto& word :
       {PeerMessage{What::ready}, PeerMessage{What::ready, {}, 0, {"a", "b"}}, PeerMessage{What::begins},
        PeerMessage{What::loaded}, PeerMessage{What::lock}, PeerMessage{.what = What::listener, .registered = true},
        PeerMessage{What::link, "a", 4294967295}, PeerMessage{What::served, {}, 4294967295}, PeerMessage{What::end}}) {
    const auto read = unpack_message(pack(word));
    REQUIRE(read);
    CHECK(*read == word);
  }
}

TEST_CASE("a later version may add fields to its messages") {
  CHECK(unpack_hello(R"({"protocol":1,"version":"9","records":1,"more":{}})"));
  CHECK(unpack_message(R"({"link":{"volume":"a","device":1,"more":0},"more":[]})"));
}

TEST_CASE("an agent with another protocol or state directory, or too old for the records, is refused with the reason") {
  const Side own{"0.2.0", 2, "2:3"};
  CHECK(refusal({2, {"0.2.0", 2, "2:4"}}, own).value_or("").find("--state-dir") != std::string::npos);
  CHECK(refusal({3, {"0.3.0", 2, "2:3"}}, own).value_or("").find("version 2 of the handover, the next one version 3") !=
        std::string::npos);
  CHECK(refusal({1, {"0.1.0", 2, "2:3"}}, own));
  CHECK(refusal({2, {"0.1.0", 1, "2:3"}}, own).value_or("").find("records of version 2") != std::string::npos);
  CHECK_FALSE(refusal({2, {"0.3.0", 3, "2:3"}}, own));
}

TEST_CASE("an agent with another node's or driver's name is refused, and one that does not say its names is not",
          "[failure:233]") {
  Side own{"0.2.0", 2, "2:3"};
  own.node = "node-1";
  own.driver = "rbd.csi.ceph.com";
  Hello next{2, own};
  CHECK_FALSE(refusal(next, own));
  next.side.node = "node-1.example.com";
  CHECK_THAT(refusal(next, own).value_or(""), ContainsSubstring("--nodeid node-1, the next one node-1.example.com"));
  next.side.node.clear();
  CHECK_FALSE(refusal(next, own));
  next.side.driver = "rook-ceph.rbd.csi.ceph.com";
  CHECK_THAT(refusal(next, own).value_or(""), ContainsSubstring("--drivername"));
}

TEST_CASE("garbage from the other agent is an error, and nothing else") {
  for (const char* text :
       {"", "{", "[]", "1", "{}", R"({"protocol":"1","records":1})", R"({"protocol":1})", R"({"answer":"maybe"})",
        R"({"link":[]})", R"({"link":{}})", R"({"link":{"device":-1}})", R"({"link":{"device":4294967296}})",
        R"({"ready":true,"cold":"a"})", R"({"ready":true,"cold":[1]})", R"({"served":true})", R"({"served":-1})"}) {
    CAPTURE(text);
    CHECK_FALSE(unpack_hello(text));
    CHECK_FALSE(unpack_answer(text));
    CHECK_FALSE(unpack_message(text));
  }
  CHECK(unpack_answer(R"({"answer":"no","why":"busy"})").error().text == "busy");
}

}  // namespace corbd::test
