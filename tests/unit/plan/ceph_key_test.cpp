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

TEST_CASE("a volume without a record uses its stage's key, which is then to be saved") {
  CephKey key;
  key.loaded(Secret("old"));
  key.begin(stage_with("new"), false);
  CHECK(key.known() == Secret("new"));
  CHECK(key.to_be_saved());
  CHECK_FALSE(key.undecided());
}

TEST_CASE("a stage uses the key that it brought, and a heal uses the key that has served the volume so far") {
  CephKey key = with_two();
  CHECK(key.asks_with() == Secret("new"));
  CHECK(key.known() == Secret("old"));
  key.begin(Wish(Healed{}), true);
  CHECK(key.asks_with() == Secret("old"));
  CHECK(key.undecided());
}

TEST_CASE("a stage's key that the cluster accepts replaces the old key and is to be saved") {
  CephKey key = with_two();
  CHECK_FALSE(key.to_be_saved());
  key.worked();
  CHECK(key.known() == Secret("new"));
  CHECK(key.to_be_saved());
  CHECK_FALSE(key.undecided());
}

TEST_CASE("a heal whose key the cluster accepts leaves a stage's newer key undecided") {
  CephKey key = with_two();
  key.begin(Wish(Healed{}), true);
  key.worked();
  CHECK(key.known() == Secret("old"));
  CHECK(key.undecided());
}

TEST_CASE("each heal whose key the cluster refuses makes the next heal use the other of the two keys") {
  CephKey key = with_two();
  key.begin(Wish(Healed{}), true);
  key.refused();
  CHECK(key.known() == Secret("new"));
  key.refused();
  CHECK(key.known() == Secret("old"));
}

TEST_CASE("a stage whose key the cluster refuses leaves the key that serves the volume unchanged") {
  CephKey key = with_two();
  key.refused();
  CHECK(key.known() == Secret("old"));
}

TEST_CASE("a volume whose record is dropped keeps no key, except that of the stage that dropped the record") {
  CephKey key = with_two();
  key.record_dropped(Wish(Unstaged{"/staging"}));
  CHECK(key.known().empty());
  key = with_two();
  key.record_dropped(stage_with("new"));
  CHECK(key.known() == Secret("new"));
  CHECK_FALSE(key.undecided());
}
