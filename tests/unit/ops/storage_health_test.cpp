#include "corbd/ops/storage_health.hpp"

#include <algorithm>

#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using ops::NodeFacts;

namespace {

/// A cluster with the bits of `wrong` set: one for each thing that can be wrong with it.
ops::ClusterFacts cluster_with(unsigned wrong) {
  ops::ClusterFacts cluster;
  cluster.volumes = 2;
  if (wrong & 1u) cluster.does_not_answer = true;
  if (wrong & 2u) cluster.pool_full = "pool rbd is full";
  if (wrong & 4u) cluster.node_fenced = "10.0.0.7 is blocklisted";
  if (wrong & 8u) cluster.oldest_request = ops::kStalled;
  return cluster;
}

}  // namespace

TEST_CASE("the storage is adverse exactly where the node's verdict blames a cluster, and well without a volume") {
  CHECK(ops::storage_conditions({}).empty());
  for (unsigned wrong = 0; wrong < 1u << 4; ++wrong) {
    INFO("wrong: " << wrong);
    NodeFacts facts;
    facts.clusters["prod"] = cluster_with(wrong);
    const auto health = ops::judge(facts);
    const auto component = std::ranges::find(health.components, "cluster prod", &ops::Component::name);
    REQUIRE(component != health.components.end());
    CHECK(ops::storage_conditions(facts).empty() == (component->verdict == ops::Verdict::ok));
  }
}

TEST_CASE("a condition says whether the cluster can be used, and why it cannot") {
  NodeFacts facts;
  facts.clusters["prod"] = cluster_with(0b1111);
  const auto all = ops::storage_conditions(facts);
  REQUIRE(all.size() == 4);
  CHECK((all[0].unreachable && all[0].reason == "NodeFenced"));
  CHECK(all[0].message == "cluster prod: 10.0.0.7 is blocklisted");
  CHECK((all[1].unreachable && all[1].reason == "ClusterUnreachable"));
  CHECK((!all[2].unreachable && all[2].reason == "PoolFull"));
  CHECK((!all[3].unreachable && all[3].message == "cluster prod has not answered a request for 10 s"));
}

TEST_CASE("a condition of two clusters is one condition that names both, because CSI allows each reason once") {
  NodeFacts facts;
  facts.clusters["east"] = facts.clusters["west"] = cluster_with(1);
  const auto all = ops::storage_conditions(facts);
  REQUIRE(all.size() == 1);
  CHECK(all[0].message == "cluster east does not answer; cluster west does not answer");
}
