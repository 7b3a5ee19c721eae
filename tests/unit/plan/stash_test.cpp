// ceph-csi's stash beside what is staged.
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
    "the stash tells what the attributes say and where the image was found, and of the device as soon as there is "
    "one") {
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

TEST_CASE("a stage whose image is refused writes no stash") {
  Model model = fresh();
  model.ownership.lock = Lock::other;
  model.ownership.owner = "10.0.0.2:0/5";
  model.attachment = {Attachment::State::away, "", "there is no VolumeAttachment"};
  Decision last;
  REQUIRE(run(model, Wish(staged_wish()), &last));
  CHECK(failure(last) == errc::in_use);
  CHECK_FALSE(model.stash);
  const std::string& text = std::get<Fail>(last).error.text;
  CHECK_THAT(text, ContainsSubstring("image pool/image (image ID id-1) of volume image-1"));
}

TEST_CASE("without a record and a stash a served device is umounted and left, one that nobody serves is not touched") {
  Model model = staged_model();
  model.record.reset();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  CHECK(std::holds_alternative<Step>(model.decide(Wish(Unstaged{kPath}))));
  Decision last;
  REQUIRE(run(model, Wish(Unstaged{kPath}), &last));
  CHECK(failure(last) == errc::unavailable);
  model.seen.facts = Facts();
  model.other_serves = true;
  REQUIRE(run(model, Wish(Unstaged{kPath}), &last));
  CHECK(std::holds_alternative<Done>(last));
  CHECK(model.seen.mounts.empty());
  CHECK(model.seen.devices.size() == 1);
}

TEST_CASE(
    "once it is known by which VolumeAttachment a volume is here, its stash tells that too, and all else as before") {
  Model model = stashed_model();
  Stash expected = *model.stash;
  expected.attachment = "uid-1";
  CHECK(run(model, Wish(Attached{"uid-1"})) == std::vector<Step>{step::WriteRecord{}, step::Look{Fact::stash},
                                                                 step::WriteStash{kPath, {}}, step::WriteRecord{}});
  CHECK(model.record->signed_as == "uid-1");
  CHECK(model.record->attachment_uid == "uid-1");
  CHECK(model.stash == expected);
}

TEST_CASE("what ceph-csi wrote over a stash is signed anew when the volume's attachment is asked for again") {
  Model model = stashed_model();
  model.record->attachment_uid = "uid-1";
  CHECK(run(model, Wish(Attached{"uid-1"})) ==
        std::vector<Step>{step::Look{Fact::stash}, step::WriteStash{kPath, {}}, step::WriteRecord{}});
  CHECK(model.stash->attachment == "uid-1");
}

TEST_CASE("a stage that knows its VolumeAttachment leaves it beside the volume") {
  Model model = fresh();
  Staged wish = staged_wish();
  wish.attachment = {Attachment::State::here, "uid-1", ""};
  REQUIRE(run(model, Wish(wish)));
  CHECK(model.stash->attachment == "uid-1");
}

TEST_CASE("a stage that does not know its VolumeAttachment leaves none of before beside the volume") {
  Model model = fresh();
  model.stash = Stash{"", "", "", "", true, false, "", "", "", "uid-0"};
  REQUIRE(run(model, Wish(staged_wish())));
  CHECK(model.stash->attachment == "");
}

TEST_CASE("the stash of a volume that nobody serves is not signed") {
  Model model = stashed_model();
  model.record->attachment_uid = GENERATE("", "uid-1");
  model.seen.link = Observation::Link::none;
  model.seen.connected = false;
  REQUIRE(run(model, Wish(Attached{"uid-1"})));
  CHECK(model.stash->attachment == "");
}

TEST_CASE("for a VolumeAttachment no stash is made, and none of another image signed") {
  Model model = stashed_model();
  if (GENERATE(true, false))
    model.stash.reset();
  else
    model.stash->image = "another";
  const auto before = model.stash;
  Decision last;
  REQUIRE(run(model, Wish(Attached{"uid-1"}), &last));
  CHECK(std::holds_alternative<Done>(last));
  CHECK(model.record->attachment_uid == "uid-1");
  CHECK(model.stash == before);
}
