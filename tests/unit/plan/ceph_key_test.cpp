// Which of two Ceph keys serves a volume.
#include "corbd/plan/ceph_key.hpp"

#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

Wish stage_with(const char* key) {
  Staged wish = staged_wish();
  wish.key = Secret(key);
  return wish;
}

/// A volume that is served with the key "old", and a stage that brought "new".
CephKey with_two() {
  CephKey key;
  key.loaded(Secret("old"));
  key.begin(stage_with("new"), true);
  return key;
}

}  // namespace

TEST_CASE("a volume without a record takes the key of its stage, and the key file gets it") {
  CephKey key;
  key.loaded(Secret("old"));
  key.begin(stage_with("new"), false);
  CHECK(key.known() == Secret("new"));
  CHECK(key.to_be_saved());
  CHECK_FALSE(key.undecided());
}

TEST_CASE("a stage asks the cluster with the key that it brought, and healing with the one that served until then") {
  CephKey key = with_two();
  CHECK(key.asks_with() == Secret("new"));
  CHECK(key.known() == Secret("old"));
  key.begin(Wish(Healed{}), true);
  CHECK(key.asks_with() == Secret("old"));
  CHECK(key.undecided());
}

TEST_CASE("a key that the cluster took replaces the one before, and the key file gets it") {
  CephKey key = with_two();
  CHECK_FALSE(key.to_be_saved());
  key.worked();
  CHECK(key.known() == Secret("new"));
  CHECK(key.to_be_saved());
  CHECK_FALSE(key.undecided());
}

TEST_CASE("a key that the cluster took for a healing does not decide about one that a stage brought") {
  CephKey key = with_two();
  key.begin(Wish(Healed{}), true);
  key.worked();
  CHECK(key.known() == Secret("old"));
  CHECK(key.undecided());
}

TEST_CASE("a healing whose key the cluster refuses makes the next one ask with the stage's key") {
  CephKey key = with_two();
  key.begin(Wish(Healed{}), true);
  key.refused();
  CHECK(key.known() == Secret("new"));
  key.refused();
  CHECK(key.known() == Secret("old"));
}

TEST_CASE("a stage whose key the cluster refuses leaves the one that serves the volume in its place") {
  CephKey key = with_two();
  key.refused();
  CHECK(key.known() == Secret("old"));
}

TEST_CASE("without its record a volume keeps no key but that of the stage that dropped it") {
  CephKey key = with_two();
  key.record_dropped(Wish(Unstaged{"/staging"}));
  CHECK(key.known().empty());
  key = with_two();
  key.record_dropped(stage_with("new"));
  CHECK(key.known() == Secret("new"));
  CHECK_FALSE(key.undecided());
}
