#include "corbd/ops/storage_health.hpp"

#include <algorithm>

#include "corbd/volume/condition.hpp"
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
  if (wrong & 16u) cluster.refused_again = 1;
  return cluster;
}

std::vector<ops::StorageCondition> conditions_of(const std::map<std::string, ops::ClusterFacts>& clusters) {
  NodeFacts facts;
  facts.clusters = clusters;
  return ops::storage_conditions(facts);
}

}  // namespace

TEST_CASE("the storage is adverse where the node's verdict blames a cluster for more than its next agent") {
  CHECK(ops::storage_conditions({}).empty());
  for (unsigned wrong = 0; wrong < 1u << 5; ++wrong) {
    INFO("wrong: " << wrong);
    NodeFacts facts;
    facts.clusters["prod"] = cluster_with(wrong);
    const auto health = ops::judge(facts);
    const auto component = std::ranges::find(health.components, "cluster prod", &ops::Component::name);
    REQUIRE(component != health.components.end());
    const bool blamed = component->verdict != ops::Verdict::ok && wrong != 16u;
    CHECK(ops::storage_conditions(facts).empty() != blamed);
  }
}

TEST_CASE("a condition says whether the cluster can be used, and why it cannot") {
  const auto all = conditions_of({{"prod", cluster_with(0b0111)}});
  REQUIRE(all.size() == 3);
  CHECK((all[0].unreachable && all[0].reason == "NodeFenced"));
  CHECK((all[1].unreachable && all[1].reason == "ClusterUnreachable"));
  CHECK((!all[2].unreachable && all[2].reason == "PoolFull"));
}

TEST_CASE("a cluster whose requests wait is late at first, and unreachable when its volumes are") {
  auto cluster = cluster_with(8);
  const auto late = conditions_of({{"prod", cluster}});
  cluster.oldest_request = volume::kUnreachableAfter;
  const auto unreachable = conditions_of({{"prod", cluster}});
  REQUIRE((late.size() == 1 && unreachable.size() == 1));
  CHECK((!late[0].unreachable && late[0].reason == "RequestsWait"));
  CHECK((unreachable[0].unreachable && unreachable[0].reason == "ClusterUnreachable"));
}

TEST_CASE("a cluster that leaves one volume's request unanswered, and answers another volume, is late") {
  volume::Status waits, heard;
  waits.cluster_id = heard.cluster_id = "prod";
  waits.in_flight = heard.in_flight = 1;
  waits.oldest = volume::kUnreachableAfter;
  NodeFacts facts;
  ops::tally(facts, {waits, heard}, heal::HealQueue({}));
  const auto all = ops::storage_conditions(facts);
  REQUIRE(all.size() == 1);
  CHECK(all[0].reason == "RequestsWait");
}

TEST_CASE("a condition of two clusters is one condition that names both, because CSI allows each reason once") {
  const auto all = conditions_of({{"east", cluster_with(1)}, {"west", cluster_with(1)}});
  REQUIRE(all.size() == 1);
  CHECK(all[0].message == "cluster east does not answer, cluster west does not answer: see `corbd status` on the node");
}
