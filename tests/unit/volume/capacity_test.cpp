// How many volumes a node has room for.
#include "corbd/volume/capacity.hpp"

#include "support/catch.hpp"

using namespace corbd;
using volume::capacity_of;
using volume::CapacityFacts;

namespace {

constexpr std::uint64_t kMiB = 1u << 20, kPlenty = 1ull << 50;

CapacityFacts plenty() {
  return {.chosen = 0, .partitions = 16, .descriptors = kPlenty, .tasks = kPlenty, .memory = kPlenty};
}

}  // namespace

TEST_CASE("a node where nothing is short has room for as many volumes as nbd has devices") {
  CHECK(capacity_of(plenty()).volumes == 32768);
  CHECK_THAT(capacity_of(plenty()).bound, ContainsSubstring("max_part=16"));
  auto facts = plenty();
  facts.partitions = 0;
  CHECK(capacity_of(facts).volumes == 1u << 20);
  facts.partitions = 255;
  CHECK(capacity_of(facts).volumes == 4096);
  CHECK(capacity_of(CapacityFacts{}).volumes == 32768);
}

TEST_CASE("the scarcest of memory, threads and descriptors bounds the number of volumes, and is named") {
  auto facts = plenty();
  facts.memory = 64 * kMiB + 100 * volume::kVolumeMemory;
  CHECK(capacity_of(facts).volumes == 100);
  CHECK_THAT(capacity_of(facts).bound, ContainsSubstring("223 MiB of memory"));
  facts.tasks = 128 + 2 * 17;
  CHECK(capacity_of(facts).volumes == 64);
  CHECK_THAT(capacity_of(facts).bound, ContainsSubstring("162 processes and threads"));
  facts.descriptors = 256 + 4 * 20;
  CHECK(capacity_of(facts).volumes == 20);
  CHECK_THAT(capacity_of(facts).bound, ContainsSubstring("RLIMIT_NOFILE"));
}

TEST_CASE("an operator's number of volumes counts, whatever the node seems to have room for") {
  auto facts = plenty();
  facts.memory = 1;
  facts.chosen = 250;
  CHECK(capacity_of(facts).volumes == 250);
  CHECK(capacity_of(facts).bound == "--max-volumes");
}

TEST_CASE("a node is never said to have room for 0 volumes, which an orchestrator reads as no limit") {
  CHECK(capacity_of({.chosen = 0, .partitions = ~0ull, .descriptors = 0, .tasks = 0, .memory = 0}).volumes == 1);
}
