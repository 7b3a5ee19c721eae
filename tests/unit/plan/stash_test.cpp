// ceph-csi's stash in the staging path.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

/// Served, with the stash that was left when it was staged.
Model stashed_model() {
  Model model = staged_model();
  model.record->source.image = "image";
  model.stash = Stash{"pool", "", "image", "force", true, false, "/dev/nbd3", "/logs", "remove"};
  return model;
}

}  // namespace

TEST_CASE(
    "the stash has the volume's attributes and the image's location, and the device's path once the device exists") {
  Model model = fresh();
  Staged wish = staged_wish();
  wish.stash.unmap_options = "force";
  wish.stash.log_dir = "/logs";
  model.record = some_record(Phase::staging);
  model.record->source = {"cluster", "pool", "ns", "image", ""};
  Decision next = model.decide(Wish(wish));
  while (!std::holds_alternative<step::WriteStash>(std::get<Step>(next))) {
    REQUIRE(model.seen.link == Observation::Link::none);
    model.apply(std::get<Step>(next), Wish(wish));
    next = model.decide(Wish(wish));
  }
  CHECK(std::get<step::WriteStash>(std::get<Step>(next)).stash ==
        Stash{"pool", "ns", "image", "force", true, false, "", "/logs", ""});
  REQUIRE(run(model, Wish(wish)));
  CHECK(model.stash == Stash{"pool", "ns", "image", "force", true, false, "/dev/nbd3", "/logs", ""});
}

TEST_CASE("a stage that is refused because another client has its image locked writes no stash") {
  Model model = fresh();
  model.ownership.lock = Lock::other;
  model.ownership.owner = "10.0.0.2:0/5";
  model.attachment = {Attachment::State::away, "", "there is no VolumeAttachment"};
  Decision last;
  REQUIRE(run(model, Wish(staged_wish()), &last));
  CHECK(failure(last) == errc::in_use);
  CHECK_FALSE(model.stash);
  const std::string& text = std::get<Refusal>(last).error.text;
  CHECK_THAT(text, ContainsSubstring("image pool/image (image ID id-1) of volume image-1"));
}

TEST_CASE(
    "an unstage without record and stash fails and touches nothing while the device is unserved, and unmounts a "
    "served device without removing it") {
  Model model = staged_model();
  model.record.reset();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  Decision last;
  CHECK(run(model, Wish(Unstaged{kPath}), &last) ==
        std::vector<Step>{step::Look{Fact::stash}, step::Look{Fact::served_by_other}});
  CHECK(failure(last) == errc::unavailable);
  CHECK(model.seen.mounts.size() == 1);
  CHECK(model.seen.devices.size() == 1);
  model.seen.facts = Facts();
  model.other_serves = true;
  REQUIRE(run(model, Wish(Unstaged{kPath}), &last));
  CHECK(std::holds_alternative<Done>(last));
  CHECK(model.seen.mounts.empty());
  CHECK(model.seen.devices.size() == 1);
}

TEST_CASE(
    "once a served volume's VolumeAttachment is known, its UID is added to the stash, which is otherwise unchanged") {
  Model model = stashed_model();
  Stash expected = *model.stash;
  expected.attachment = "uid-1";
  CHECK(run(model, Wish(Attached{"uid-1"})) == std::vector<Step>{step::WriteRecord{}, step::Look{Fact::stash},
                                                                 step::WriteStash{kPath, {}}, step::WriteRecord{}});
  CHECK(model.record->proof.signed_as == "uid-1");
  CHECK(model.record->proof.attachment_uid == "uid-1");
  CHECK(model.stash == expected);
}

TEST_CASE("a stash that lacks the recorded attachment UID gets that UID when the same attachment is reported again") {
  Model model = stashed_model();
  model.record->proof.attachment_uid = "uid-1";
  CHECK(run(model, Wish(Attached{"uid-1"})) ==
        std::vector<Step>{step::Look{Fact::stash}, step::WriteStash{kPath, {}}, step::WriteRecord{}});
  CHECK(model.stash->attachment == "uid-1");
}

TEST_CASE("a stash that was overwritten after it got its attachment UID gets the UID again") {
  Model model = stashed_model();
  model.record->proof.attachment_uid = model.record->proof.signed_as = "uid-1";
  CHECK(run(model, Wish(Attached{"uid-1"})) == std::vector<Step>{step::Look{Fact::stash}, step::WriteStash{kPath, {}}});
  CHECK(model.stash->attachment == "uid-1");
}

TEST_CASE("a stage that knows its VolumeAttachment writes the attachment's UID to the stash") {
  Model model = fresh();
  Staged wish = staged_wish();
  wish.attachment = {Attachment::State::here, "uid-1", ""};
  REQUIRE(run(model, Wish(wish)));
  CHECK(model.stash->attachment == "uid-1");
}

TEST_CASE("a stage that does not know its VolumeAttachment removes an earlier attachment's UID from the stash") {
  Model model = fresh();
  model.stash = Stash{"", "", "", "", true, false, "", "", "", "uid-0"};
  REQUIRE(run(model, Wish(staged_wish())));
  CHECK(model.stash->attachment == "");
}

TEST_CASE("the stash of an unserved volume gets no attachment UID") {
  Model model = stashed_model();
  model.record->proof.attachment_uid = GENERATE("", "uid-1");
  model.seen.link = Observation::Link::none;
  model.seen.connected = false;
  REQUIRE(run(model, Wish(Attached{"uid-1"})));
  CHECK(model.stash->attachment == "");
}

TEST_CASE("a reported attachment is recorded, but makes no stash and does not change the stash of another image") {
  Model model = stashed_model();
  if (GENERATE(true, false))
    model.stash.reset();
  else
    model.stash->image = "another";
  const auto before = model.stash;
  Decision last;
  REQUIRE(run(model, Wish(Attached{"uid-1"}), &last));
  CHECK(std::holds_alternative<Done>(last));
  CHECK(model.record->proof.attachment_uid == "uid-1");
  CHECK(model.stash == before);
}
