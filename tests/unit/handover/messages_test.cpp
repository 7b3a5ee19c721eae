#include "messages.hpp"

#include "support/catch.hpp"

namespace corbd::test {
using namespace handover;

TEST_CASE("the messages of a handover are these, byte for byte, in version 1 of its protocol") {
  CHECK(pack(Hello{1, {"0.1.0", 1, "2:3"}}) == R"({"protocol":1,"version":"0.1.0","records":1,"state":"2:3"})");
  CHECK(pack_answer(std::nullopt) == R"({"answer":"yes"})");
  CHECK(pack_answer("too old") == R"({"answer":"no","why":"too old"})");
  CHECK(pack(Part{{{"a", 0}, {"b", 7}}, false}) ==
        R"({"links":[{"volume":"a","device":0},{"volume":"b","device":7}]})");
  CHECK(pack(Part{{}, true}) == R"({"lock":true})");
  CHECK(pack(Part{{}, false, true}) == R"({"ready":true})");
  CHECK(kProtocol == 1);
}

TEST_CASE("what one agent packs, the other unpacks") {
  const auto hello = unpack_hello(pack(Hello{1, {"0.1.0 (abc)", 3, "2:3"}}));
  REQUIRE(hello);
  CHECK(hello->protocol == 1);
  CHECK(hello->side.version == "0.1.0 (abc)");
  CHECK(hello->side.records == 3);
  const auto part = unpack_part(pack(Part{{{"a", 4294967295}}, false}));
  REQUIRE(part);
  CHECK(part->links == std::vector<std::pair<std::string, std::uint32_t>>{{"a", 4294967295}});
  CHECK(part->sockets() == 1);
  const auto lock = unpack_part(pack(Part{{}, true}));
  REQUIRE(lock);
  CHECK(lock->lock);
  CHECK(lock->sockets() == 1);
}

TEST_CASE("a later agent may add to what it says") {
  CHECK(unpack_hello(R"({"protocol":1,"version":"9","records":1,"more":{}})"));
  CHECK(unpack_part(R"({"links":[{"volume":"a","device":1,"more":0}],"more":[]})"));
}

TEST_CASE("an agent of another protocol or state folder, or older than the records, is refused with the reason") {
  const Side own{"0.2.0", 2, "2:3"};
  CHECK(refusal({1, {"0.2.0", 2, "2:4"}}, own).value_or("").find("--state-dir") != std::string::npos);
  CHECK(refusal({2, {"0.3.0", 2, "2:3"}}, own).value_or("").find("version 1 of the handover, the next one version 2") !=
        std::string::npos);
  CHECK(refusal({1, {"0.1.0", 1, "2:3"}}, own).value_or("").find("records of version 2") != std::string::npos);
  CHECK_FALSE(refusal({1, {"0.3.0", 3, "2:3"}}, own));
}

TEST_CASE("garbage from the other agent is an error, and nothing else") {
  for (const char* text : {"", "{", "[]", "1", "{}", R"({"protocol":"1","records":1})", R"({"protocol":1})",
                           R"({"answer":"maybe"})", R"({"links":{}})", R"({"links":[1]})", R"({"links":[{}]})",
                           R"({"links":[{"device":-1}]})", R"({"links":[{"device":4294967296}]})"}) {
    CAPTURE(text);
    CHECK_FALSE(unpack_hello(text));
    CHECK_FALSE(unpack_answer(text));
    CHECK_FALSE(unpack_part(text));
  }
  CHECK(unpack_answer(R"({"answer":"no","why":"busy"})").error().text == "busy");
}

}  // namespace corbd::test
