#include "corbd/cephcsi/mounters.hpp"

#include "corbd/cephcsi/handle.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::cephcsi;

namespace {

MounterRules rules(std::string_view text) {
  auto parsed = parse_mounter_rules(text);
  if (!parsed) FAIL(parsed.error().text);
  return *parsed;
}

std::string refusal(std::string_view text) {
  const auto parsed = parse_mounter_rules(text);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == errc::invalid_argument);
  return parsed.error().text;
}

}  // namespace

TEST_CASE("the first rule that matches a volume decides who serves it") {
  const auto list = rules(R"([{"clusterID":"c","pool":"slow","mounter":"rbd"},{"clusterID":"c","mounter":"rbd-nbd"}])");
  CHECK(choose_mounter(list, {"c", "slow", std::nullopt}).mounter == Mounter::krbd);
  CHECK(choose_mounter(list, {"c", "fast", std::nullopt}).mounter == Mounter::nbd);
  CHECK_FALSE(choose_mounter(list, {"d", "slow", std::nullopt}).mounter);
}

TEST_CASE("a rule without conditions matches every volume") {
  CHECK(choose_mounter(rules(R"([{"mounter":"rbd"}])"), {"c", "", std::nullopt}).mounter == Mounter::krbd);
}

TEST_CASE("the StorageClass is asked for only where a rule that may decide names one") {
  const auto list = rules(
      R"([{"pool":"p","mounter":"rbd"},{"clusterID":"c","storageClass":"gold","mounter":"rbd-nbd"},{"mounter":"rbd"}])");
  CHECK(choose_mounter(list, {"c", "q", std::nullopt}) == MounterChoice{std::nullopt, true});
  CHECK(choose_mounter(list, {"c", "p", std::nullopt}) == MounterChoice{Mounter::krbd, false});
  CHECK(choose_mounter(list, {"d", "q", std::nullopt}) == MounterChoice{Mounter::krbd, false});
  CHECK(choose_mounter(list, {"c", "q", "gold"}) == MounterChoice{Mounter::nbd, false});
  CHECK(choose_mounter(list, {"c", "q", ""}) == MounterChoice{Mounter::krbd, false});
}

TEST_CASE("an empty mounters.json has no rule") { CHECK(rules(GENERATE("", " \n", "[]")).empty()); }

TEST_CASE("an invalid rule is refused by its number and key, so that a misspelt condition matches nothing by mistake") {
  CHECK_THAT(refusal(R"([{"mounter":"rbd"},{"storageclass":"gold","mounter":"rbd"}])"),
             ContainsSubstring("rule 2") && ContainsSubstring("storageclass"));
  CHECK_THAT(refusal(R"([{"pool":"p"}])"), ContainsSubstring("mounter"));
  CHECK_THAT(refusal(R"([{"mounter":"nbd"}])"), ContainsSubstring("rbd-nbd"));
  CHECK_THAT(refusal(R"([{"mounter":"rbd","pool":7}])"), ContainsSubstring("pool"));
  CHECK_THAT(refusal("[7]"), ContainsSubstring("rule 1"));
  CHECK_THAT(refusal(R"({"mounter":"rbd"})"), ContainsSubstring("list"));
  CHECK_THAT(refusal("{"), ContainsSubstring("JSON"));
}

TEST_CASE("a volume's cluster is that of its volume ID, a static one's that of its attributes") {
  const std::string id = encode(Handle{"c-1", 7, "15df6447-688b-11ea-9afc-1ed3ac041a33"});
  const auto dynamic = mounter_case(id, {{"clusterID", "else"}, {"pool", "p"}});
  CHECK(dynamic.cluster_id == "c-1");
  CHECK(dynamic.pool == "p");
  CHECK_FALSE(dynamic.storage_class);
  CHECK(mounter_case("image", {{"staticVolume", "true"}, {"clusterID", "c"}, {"pool", "p"}}).cluster_id == "c");
}

TEST_CASE("a migrated volume's cluster and pool are in its volume ID where its attributes lack them") {
  const MigratedHandle handle{"0123456789abcdef0123456789abcdef",
                              "kubernetes-dynamic-pvc-15df6447-688b-11ea-9afc-1ed3ac041a33", "replicapool"};
  const auto of = mounter_case(encode(handle), {{"staticVolume", "true"}, {"migration", "true"}});
  CHECK(of.cluster_id == handle.cluster_id);
  CHECK(of.pool == handle.pool);
}
