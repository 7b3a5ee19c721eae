// What is read of JSON that a tenant's server wrote.
#include "json_answer.hpp"

#include "corbd/core/secret.hpp"
#include "support/catch.hpp"
#include "support/memory_scan.hpp"

using corbd::kms::JsonAnswer;
using Is = JsonAnswer::Is;

TEST_CASE("an answer has its texts, numbers, lists and objects by their paths") {
  const auto answer = JsonAnswer::parse(
      R"({"data": {"data": {"passphrase": "a\u00e9\n"}, "metadata": {"version": 7}}, "errors": ["x", null], "no": -1, "half": 0.5})");
  REQUIRE(answer.at({"data", "data", "passphrase"}) != nullptr);
  CHECK(answer.at({"data", "data", "passphrase"})->text == "a\u00e9\n");
  CHECK(answer.at({"data", "metadata", "version"})->count == 7u);
  CHECK(answer.find("errors")->is == Is::list);
  CHECK(answer.find("errors")->inside.size() == 2);
  CHECK(answer.find("no")->is == Is::number);
  CHECK_FALSE(answer.find("no")->count);
  CHECK_FALSE(answer.find("half")->count);
  CHECK(answer.at({"data", "nothing", "passphrase"}) == nullptr);
  CHECK(answer.object_at({"errors"}) == nullptr);
}

TEST_CASE("of members with the same name the last one counts, as Go reads them") {
  CHECK(JsonAnswer::parse(R"({"a": "1", "a": "2"})").find("a")->text == "2");
}

TEST_CASE("what is cut, has more behind it, or is no JSON is nothing") {
  for (const char* text : {"", "{", R"({"a": 1)", R"({"a": 1} x)", "<html>", R"({"a": "\ud800"})", "{'a': 1}"}) {
    const auto answer = JsonAnswer::parse(text);
    CHECK(answer.is == Is::null);
    CHECK(answer.find("a") == nullptr);
  }
  CHECK(JsonAnswer::parse(" {} \n").is == Is::object);
}

TEST_CASE("an answer that is too deep, or has too many values, is nothing", "[failure:210]") {
  const std::string deep(JsonAnswer::kDepth + 1, '['), ends(JsonAnswer::kDepth + 1, ']');
  CHECK(JsonAnswer::parse(deep + ends).is == Is::null);
  CHECK(JsonAnswer::parse(deep.substr(1) + ends.substr(1)).is == Is::list);
  std::string many = "[0";
  for (std::size_t i = 2; i < JsonAnswer::kValues; ++i) many += ",0";
  CHECK(JsonAnswer::parse(many + "]").is == Is::list);
  CHECK(JsonAnswer::parse(many + ",0]").is == Is::null);
}

// keys L1
TEST_CASE("a key with an escape in its JSON is nowhere in memory once its answer is gone") {
  using corbd::test::is_in_memory, corbd::test::turned;
  const std::string key = turned("key-") + std::string(40, static_cast<char>(~'k'));
  {
    std::string json;
    json.reserve(1000);
    // The allocator writes over the beginning of a buffer that is freed.
    json += R"({"passphrase": "begins with more than 16 bytes )";
    for (const char c : key) json += static_cast<char>(~c);
    // With one of them, the answer's own text would come to lie in the freed buffer.
    for (int i = 0; i < 32; ++i) json += "\\n";
    json += R"("})";
    const auto answer = JsonAnswer::parse(json);
    REQUIRE(answer.find("passphrase") != nullptr);
    CHECK(answer.find("passphrase")->text.ends_with("k" + std::string(32, '\n')));
    corbd::wipe(json);
    CHECK(is_in_memory(key));
  }
  CHECK_FALSE(is_in_memory(key));
}
