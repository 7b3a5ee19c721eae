// Which of two Ceph users and keys serves a volume.
#include "corbd/plan/credentials.hpp"

#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

const Credential kOld{"node", Secret("old")}, kNew{"node.1", Secret("new")};

Wish stage_with(const Credential& credential) {
  Staged wish = staged_wish();
  wish.credential = credential;
  return wish;
}

/// A volume that is served with the old ones, and a stage that brought new ones.
Credentials with_two() {
  Credentials both;
  both.loaded(kOld);
  both.begin(stage_with(kNew), true);
  return both;
}

}  // namespace

TEST_CASE("a volume without a record uses its stage's user and key, which are then to be saved") {
  Credentials both;
  both.loaded(kOld);
  both.begin(stage_with(kNew), false);
  CHECK(both.known() == kNew);
  CHECK(both.to_be_saved());
  CHECK_FALSE(both.undecided());
}

TEST_CASE("a stage uses the user and key that it brought, and a heal those that have served the volume so far") {
  Credentials both = with_two();
  CHECK(both.asks_with() == kNew);
  CHECK(both.known() == kOld);
  both.begin(Wish(Healed{}), true);
  CHECK(both.asks_with() == kOld);
  CHECK(both.undecided());
}

TEST_CASE("a stage's user and key that the cluster accepts replace the old ones as a pair, and are to be saved") {
  Credentials both = with_two();
  CHECK_FALSE(both.to_be_saved());
  both.worked();
  CHECK(both.known() == kNew);
  CHECK(both.to_be_saved());
  CHECK_FALSE(both.undecided());
}

TEST_CASE("a heal whose key the cluster accepts leaves a stage's newer key undecided") {
  Credentials both = with_two();
  both.begin(Wish(Healed{}), true);
  both.worked();
  CHECK(both.known() == kOld);
  CHECK(both.undecided());
}

TEST_CASE("with two keys none is written before the cluster has decided, unless the files have neither") {
  Credentials both = with_two();
  CHECK(both.has(kOld));
  CHECK(both.has(kNew));
  CHECK_FALSE(both.has({"node", Secret("another")}));
  CHECK_FALSE(both.goes_with_record());
  both.file_lost();
  CHECK(both.goes_with_record());
  both.saved();
  CHECK_FALSE(both.goes_with_record());
  CHECK(both.known() == kOld);
  CHECK(both.undecided());
}

TEST_CASE("a volume without a key takes that of its Secret, which is then to be saved") {
  Credentials none;
  none.begin(Wish(Healed{}), true);
  CHECK(none.take(kNew, errc::unavailable));
  CHECK(none.known() == kNew);
  CHECK(none.goes_with_record());
  CHECK_FALSE(none.take(kNew, errc::unauthenticated));
}

TEST_CASE("a stage's pair for a volume whose own was lost is not written before the cluster takes it") {
  Credentials lost;
  lost.begin(stage_with(kNew), true);
  CHECK(lost.asks_with() == kNew);
  CHECK(lost.untried());
  CHECK_FALSE(lost.goes_with_record());
  lost.tried();
  CHECK_FALSE(lost.untried());
  lost.begin(stage_with(kNew), true);
  CHECK(lost.untried());
  lost.worked();
  CHECK_FALSE(lost.untried());
  CHECK(lost.goes_with_record());
}

TEST_CASE("each heal whose key the cluster refuses makes the next heal use the other of the two keys") {
  Credentials both = with_two();
  both.begin(Wish(Healed{}), true);
  both.refused();
  CHECK(both.known() == kNew);
  both.refused();
  CHECK(both.known() == kOld);
}

TEST_CASE("a stage keeps the key that served the volume beside its own, also while the cluster refuses both") {
  Credentials both = with_two();
  both.begin(Wish(Healed{}), true);
  both.refused();
  const Credential again = GENERATE(as<Credential>{}, kNew, Credential{"node.2", Secret("newer")});
  both.begin(stage_with(again), true);
  CHECK(both.asks_with() == again);
  CHECK(both.known() == kOld);
}

TEST_CASE("a Secret's pair does not replace the key that served the volume, also while the cluster refuses both") {
  Credentials both = with_two();
  both.begin(Wish(Healed{}), true);
  both.refused();
  both.begin(Wish(Healed{}), true);
  const Credential third{"node.2", Secret("newer")};
  REQUIRE(both.take(third, errc::unauthenticated));
  CHECK(both.asks_with() == third);
  CHECK(both.known() == kOld);
}

TEST_CASE("a stage whose key the cluster refuses leaves the key that serves the volume unchanged") {
  Credentials both = with_two();
  both.refused();
  CHECK(both.known() == kOld);
}

TEST_CASE("a volume whose record is dropped keeps no key, except that of the stage that dropped the record") {
  Credentials both = with_two();
  both.record_dropped(Wish(Unstaged{"/staging"}));
  CHECK(both.known().empty());
  both = with_two();
  both.record_dropped(stage_with(kNew));
  CHECK(both.known() == kNew);
  CHECK_FALSE(both.undecided());
}

TEST_CASE("a stage's new pair is untried until the cluster was asked about it") {
  Credentials both = with_two();
  CHECK(both.untried());
  both.tried();
  CHECK_FALSE(both.untried());
  both.begin(stage_with(kNew), true);
  CHECK(both.untried());
  both.begin(Wish(Healed{}), true);
  CHECK_FALSE(both.untried());
}

TEST_CASE(
    "a Secret's pair is taken after a refusal unless it is the refused one, and worked() makes it the known one") {
  Credentials both;
  both.loaded(kOld);
  both.begin(Wish(Healed{}), true);
  CHECK_FALSE(both.take(kOld, errc::unauthenticated));
  REQUIRE(both.take(kNew, errc::unauthenticated));
  CHECK(both.asks_with() == kNew);
  both.worked();
  CHECK(both.known() == kNew);
  CHECK(both.to_be_saved());
}

TEST_CASE("a user without rights is replaced by another user of the Secret, not by another key of his own") {
  Credentials both;
  both.loaded(kOld);
  both.begin(Wish(Healed{}), true);
  CHECK_FALSE(both.take({kOld.user, Secret("new")}, errc::permission_denied));
  CHECK(both.take(kNew, errc::permission_denied));
}
