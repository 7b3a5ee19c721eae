// What the end of a wish leads to: undo and retry. Also, whether it says anything about the image's owner.
#include "corbd/plan/outcome.hpp"

#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

const Error kFinal{errc::invalid_argument, "no such mount option"};

std::optional<Record> record_with(std::vector<Staging> stagings, std::vector<Publish> publishes = {}) {
  Record record;
  record.stagings = std::move(stagings);
  record.publishes = std::move(publishes);
  return record;
}

Published published_at(std::string target) {
  Published wish;
  wish.target = std::move(target);
  return wish;
}

}  // namespace

TEST_CASE("a stage with a final error is undone, and a stage that its caller will repeat is not") {
  const Wish wish = staged_wish();
  const auto record = record_with({{staged_wish().path, {}, false}});
  const FailedWish failure = after_failure(wish, {}, record, kFinal);
  CHECK(failure.undo == Wish(Unstaged{staged_wish().path}));
  CHECK(failure.error.code == errc::invalid_argument);
  CHECK_FALSE(after_failure(wish, {}, record, {errc::unreachable, "no answer"}).undo);
}

TEST_CASE("a stage that fails at a path where the volume is already staged leaves that staging in place") {
  const auto record = record_with({{staged_wish().path, {}, true}});
  CHECK_FALSE(after_failure(staged_wish(), record, record, kFinal).undo);
}

TEST_CASE("a failed publish removes only the target that it added") {
  const auto before = record_with({}, {{"/pod/1", "/staging"}});
  const auto now = record_with({}, {{"/pod/1", "/staging"}, {"/pod/2", "/staging"}});
  CHECK(after_failure(published_at("/pod/2"), before, now, kFinal).undo == Wish(Unpublished{"/pod/2"}));
  CHECK_FALSE(after_failure(published_at("/pod/1"), before, now, kFinal).undo);
  CHECK_FALSE(after_failure(published_at("/pod/3"), before, now, kFinal).undo);
}

TEST_CASE("a stage that fails after it began a format keeps its record and is retried, even if the error is final") {
  auto record = record_with({{staged_wish().path, {}, false}});
  record->format = Format{"3f2a"};
  const FailedWish failure = after_failure(staged_wish(), {}, record, kFinal);
  CHECK_FALSE(failure.undo);
  CHECK(failure.error.code == errc::unavailable);
  CHECK(failure.error.text == kFinal.text);
}

TEST_CASE("a failed undo returns a retryable error that contains both errors") {
  const Error error = undo_failed(kFinal, {errc::timed_out, "umount does not end"});
  CHECK(error.code == errc::unavailable);
  CHECK(error.text == "no such mount option; undoing it failed: umount does not end");
}

TEST_CASE("a stage whose image has holders is retried after pauses that double up to 5 s") {
  Facts facts;
  facts.holders.emplace();
  const result<> in_use = Error{errc::in_use, "10.0.0.2 has it"};
  const auto pause = [&](unsigned tries) { return pause_before_retry(staged_wish(), in_use, facts, tries); };
  CHECK(pause(1) == std::chrono::milliseconds(500));
  CHECK(pause(2) == std::chrono::seconds(1));
  CHECK(pause(4) == std::chrono::seconds(4));
  CHECK(pause(5) == std::chrono::seconds(5));
  CHECK(pause(4000000000) == std::chrono::seconds(5));
}

TEST_CASE("only a stage whose image has holders is retried while its caller waits") {
  Facts facts;
  facts.holders.emplace();
  const result<> in_use = Error{errc::in_use, "10.0.0.2 has it"};
  CHECK_FALSE(pause_before_retry(Wish(Healed{}), in_use, facts, 1));
  CHECK_FALSE(pause_before_retry(staged_wish(), result<>(), facts, 1));
  CHECK_FALSE(pause_before_retry(staged_wish(), Error{errc::unavailable, "no"}, facts, 1));
  CHECK_FALSE(pause_before_retry(staged_wish(), in_use, Facts(), 1));
}

TEST_CASE(
    "an unavailable unstage and a successful unpublish report on the image's owner only if they read the ownership; a "
    "heal always reports") {
  const result<> waits = Error{errc::unavailable, "a helper works on it"};
  CHECK_FALSE(tells_of_ownership(Wish(Unstaged{"/staging"}), waits, {}));
  CHECK_FALSE(tells_of_ownership(Wish(Unpublished{"/pod/1"}), result<>(), {}));
  CHECK(tells_of_ownership(Wish(Healed{}), waits, {}));
  Facts looked;
  looked.ownership.emplace();
  CHECK(tells_of_ownership(Wish(Unstaged{"/staging"}), waits, looked));
}

// peers P5
TEST_CASE(
    "another user or key is asked for after the cluster has refused one, and not for a stage, which brings its own") {
  Facts refused;
  refused.refused = true;
  CHECK(may_have_other_credential(Wish(Healed{}), true, refused));
  CHECK(may_have_other_credential(Wish(Unstaged{}), true, refused));
  CHECK_FALSE(may_have_other_credential(Wish(Healed{}), true, Facts()));
  CHECK_FALSE(may_have_other_credential(Wish(Healed{}), false, refused));
  CHECK_FALSE(may_have_other_credential(Wish(Staged{}), true, refused));
}
