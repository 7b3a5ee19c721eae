#include "blocklist_json.hpp"

#include "support/catch.hpp"

using namespace corbd;
using Kind = image::BlocklistEntry::Kind;

namespace {

// As Ceph 16.2.15 prints it.
constexpr const char* kReal = R"([{"addr":"[fd12::1]:0/0","until":"2026-11-23T04:16:17.295187+0000"},)"
                              R"({"addr":"10.98.0.1:0/77","until":"2026-11-23T03:17:52.108005+0000"}])"
                              R"([{"range":"10.97.0.5:0/24","until":"2026-11-23T03:17:54.300530+0000"},)"
                              R"({"range":"[fd00::]:0/64","until":"2026-11-23T03:17:53.091985+0000"}])";

}  // namespace

TEST_CASE("clients, whole addresses and ranges of a blocklist are told apart") {
  const auto entries = rbd::parse_blocklist(kReal).value();
  REQUIRE(entries.size() == 4);
  CHECK(entries[0].kind == Kind::host);
  CHECK(entries[0].text() == "fd12::1");
  CHECK(entries[1].kind == Kind::client);
  CHECK(entries[1].text() == "10.98.0.1:0/77");
  CHECK(entries[2].kind == Kind::range);
  CHECK(entries[2].text() == "10.97.0.0/24");
  CHECK(entries[2].spelled == "10.97.0.5/24");
  CHECK(entries[3].text() == "fd00::/64");
  CHECK(std::chrono::system_clock::to_time_t(entries[1].until) == 1795403872);
}

TEST_CASE("the end of an entry is in the monitor's time zone, and an entry with a port is one client's") {
  const auto entries =
      rbd::parse_blocklist(R"([{"addr":"10.0.0.1:6801/0","until":"2026-11-23T05:17:52.108005+0200"}])").value();
  CHECK(std::chrono::system_clock::to_time_t(entries[0].until) == 1795403872);
  CHECK(entries[0].kind == Kind::client);
}

TEST_CASE("an empty blocklist is one without entries") {
  for (const char* text : {"", "[]", "[][]", "[]\n[]\n"}) CHECK(rbd::parse_blocklist(text).value().empty());
}

TEST_CASE("a blocklist that cannot be parsed is an error, never a shorter list") {
  for (const char* text :
       {"{}", "[", "[{}]", R"([{"addr":"10.0.0.1:0/5"}])", R"([{"addr":"host","until":"2026-11-23T04:16:17"}])",
        R"([{"range":"10.0.0.0:0/40","until":"2026-11-23T04:16:17"}])", R"([{"addr":"10.0.0.1:0/5","until":"soon"}])",
        R"([7])", "nothing"})
    CHECK(rbd::parse_blocklist(text).error().code == errc::unavailable);
}

TEST_CASE("a caller that looks for its own entries learns which others cannot be parsed") {
  std::vector<std::string> unknown;
  const auto entries = rbd::parse_blocklist(
      R"([{"addr":"odd","until":"2026-11-23T04:16:17"},{"addr":"10.0.0.1:0/5","until":"2026-11-23T04:16:17"}])",
      &unknown);
  REQUIRE(entries);
  REQUIRE(entries->size() == 1);
  CHECK(entries->front().client == "10.0.0.1:0/5");
  CHECK(unknown.size() == 1);
  CHECK(rbd::parse_blocklist("[", &unknown).error().code == errc::unavailable);
}

TEST_CASE("a monitor's answer tells its clock") {
  // As Ceph 16.2.15 answers.
  const auto end = rbd::end_in_answer("blocklisting 10.98.0.1:0/77 until 2026-11-23T03:17:52.108005+0000 (60 sec)");
  REQUIRE(end);
  CHECK(std::chrono::system_clock::to_time_t(*end) == 1795403872);
  CHECK_FALSE(rbd::end_in_answer("done"));
  CHECK_FALSE(rbd::end_in_answer("blocklisting x until tomorrow (60 sec)"));
}
