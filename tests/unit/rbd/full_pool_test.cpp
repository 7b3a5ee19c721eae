#include "full_pool.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::rbd;

namespace {

/// As 16.2.15 answers, without the members that nobody reads.
std::string pool(int id, const std::string& name, const std::string& flags) {
  return R"({"pool_id":)" + std::to_string(id) + R"(,"pool_name":")" + name + R"(","flags":8193,"flags_names":")" +
         flags + R"(","quota_max_bytes":4096,"options":{}})";
}

}  // namespace

TEST_CASE("the monitors' list of pools says whether a pool is full, and why", "[failure:131]") {
  const std::string json = "[" + pool(1, "free", "hashpspool,selfmanaged_snaps") + "," +
                           pool(2, "quota", "hashpspool,full,full_quota,selfmanaged_snaps") + "," +
                           pool(3, "space", "hashpspool,full,selfmanaged_snaps") + "," +
                           pool(4, "near", "hashpspool,nearfull,backfillfull") + "]\n";
  CHECK(find_full_pool(json, 1).value() == std::nullopt);
  CHECK(find_full_pool(json, 2).value() == FullPool{"quota", true});
  CHECK(find_full_pool(json, 3).value() == FullPool{"space", false});
  CHECK(find_full_pool(json, 4).value() == std::nullopt);
}

TEST_CASE("an answer of the monitors that lacks the pool or is not understood says nothing about the pool") {
  for (const char* json :
       {"", "{}", "[]", "[7]", "[{\"pool_id\":1}]", "[{\"pool_id\":1,\"pool_name\":\"a\",\"flags_names\":7}]",
        "[{\"pool_id\":2,\"pool_name\":\"a\",\"flags_names\":\"full\"}]"})
    CHECK(find_full_pool(json, 1).error().code == errc::unavailable);
}

TEST_CASE("the text about a full pool names the pool, the cause and the remedy") {
  CHECK(text_of({"p", true}) ==
        "pool p is full, and writes to it wait: its quota is reached. Raise it: `ceph osd pool set-quota p max_bytes "
        "MORE`, or max_objects");
  CHECK(text_of({"p", false}) ==
        "pool p is full, and writes to it wait: OSDs of it are full. `ceph health detail` names them. Add OSDs, or "
        "delete images: before that raise the full ratio, because a full pool refuses deletions "
        "(docs/bad-days.md#full-pools-and-quotas)");
}
