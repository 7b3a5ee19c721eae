// Healing: a device is served again, on proof of ownership.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

TEST_CASE(
    "a heal fences dead clients, opens the image, proves ownership, takes the lock, reconnects the device, and does "
    "nothing else") {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  model.ownership.lock = Lock::our_dead;
  const auto steps = run(model, Wish(Healed{}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Fence{}, step::OpenImage{}, step::Look{Fact::ownership}, step::WriteRecord{},
                                    step::Lock{}, step::StartSession{}, step::KernelReconfigure{},
                                    step::WriteRecord{}});
}

TEST_CASE("the record has the request for a lock from before it until the device is served", "[failure:142]") {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  model.seen.client = "10.0.0.1:0/7";
  model.seen.now = {5, 6};
  model.ownership.lock = Lock::our_dead;
  for (auto next = model.decide(Wish(Healed{})); std::holds_alternative<Step>(next);
       next = model.decide(Wish(Healed{}))) {
    const auto step = std::get<Step>(next);
    if (std::holds_alternative<step::Lock>(step) || std::holds_alternative<step::KernelReconfigure>(step))
      CHECK(model.record->proof.lock_call == LockCall{"10.0.0.1:0/7", {5, 6}});
    model.apply(step, Wish(Healed{}));
  }
  CHECK_FALSE(model.record->proof.lock_call);
  CHECK(model.seen.connected);
}

TEST_CASE("a session whose image lost its connection is stopped before anything else") {
  Model model = staged_model();
  model.seen.link = Observation::Link::held;
  const auto decision = model.decide(Wish(Healed{}));
  REQUIRE(std::holds_alternative<Step>(decision));
  CHECK(std::get<Step>(decision) == Step(step::StopSession{}));
}

TEST_CASE("an unproven image that another client has open is closed, unless that would release the agent's own lock") {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  model.ownership.lock = GENERATE(Lock::mine, Lock::none);
  model.ownership.foreign_watchers = {"10.0.0.9:0/77"};
  Decision last;
  REQUIRE(run(model, Wish(Healed{}), &last));
  REQUIRE(failure(last) == errc::unproven);
  CHECK(std::get<Refusal>(last).leaves == (model.ownership.lock != Lock::mine));
}

namespace {

/// The predecessor has just handed its link over, and has left its mark.
Model given_without_lock() {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  model.exclusive_lock = false;
  model.ownership.lock = Lock::none;
  model.ownership.handed_over = model.seen.link_inherited = true;
  return model;
}

}  // namespace

TEST_CASE("after a handover, the predecessor's mark proves the ownership of an image without exclusive-lock",
          "[failure:194]") {
  Model model = given_without_lock();
  const auto steps = run(model, Wish(Healed{}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Fence{}, step::OpenImage{}, step::Look{Fact::ownership}, step::Lock{},
                                    step::Look{Fact::ownership}, step::StartSession{}, step::KernelReconfigure{}});
}

TEST_CASE("a predecessor's mark proves nothing if any other condition of a handover is missing", "[rule:2a]") {
  Model model = given_without_lock();
  const int what = GENERATE(range(0, 6));
  CAPTURE(what);
  if (what == 0) model.seen.link_inherited = false;                     // there is no link to resume
  if (what == 1) model.ownership.handed_over = false;                   // the mark was not left for this agent
  if (what == 2) model.ownership.foreign_watchers = {"10.0.0.9:0/77"};  // another client has it open
  if (what == 3) model.exclusive_lock = true;                           // such an image needs its lock as well
  if (what == 4) model.record->proof.operator_override = true;          // an earlier try on an override failed
  if (what == 5) {                                                      // another agent has replaced our own mark
    model.ownership.handed_over = false;
    model.seen.image_open = model.seen.writer_marked = true;
    model.seen.exclusive_lock = false;
    model.ownership.writer = "10.0.0.9:0/77";
  }
  Decision last;
  REQUIRE(run(model, Wish(Healed{}), &last));
  CHECK(failure(last) == errc::unproven);
}

TEST_CASE("a heal of an unserved volume without its Ceph key fails as unavailable, and opens nothing") {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  model.ownership.lock = Lock::our_dead;
  model.seen.key_known = false;
  model.seen.key_unread = "/keys/7 does not exist";
  Decision last;
  CHECK(run(model, Wish(Healed{}), &last) == std::vector<Step>{});
  CHECK(failure(last) == errc::unavailable);
  const auto& refusal = std::get<Refusal>(last);
  CHECK(refusal.lacks_key);
  CHECK_THAT(refusal.error.text, ContainsSubstring("volume") && ContainsSubstring("/keys/7 does not exist: stage it"));
}

TEST_CASE(
    "a record of an earlier boot, or of another device than stash and kernel name, is closed, and the device is left "
    "alone",
    "[failure:28]") {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  const int what = GENERATE(range(0, 4));
  CAPTURE(what);
  if (what == 0) model.seen.boot_id = "next";
  if (what > 0) model.record->device.index = 5;
  if (what > 1) model.stash.emplace().nbd = true;
  if (what > 1) model.stash->device = what == 2 ? "/dev/nbd3" : "/dev/nbd5";
  Decision last;
  REQUIRE(run(model, Wish(Healed{}), &last));
  const bool closed = what == 0 || what == 2;
  CHECK(model.record.has_value() != closed);
  CHECK(failure(last) == (closed ? errc::ok : errc::failed_precondition));
  CHECK(model.seen.devices.size() == 1);
}

TEST_CASE("a heal closes a record whose device is gone, but keeps one with a mount, a stash, or no device number") {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  model.seen.devices.clear();
  const int left = GENERATE(range(0, 4));
  CAPTURE(left);
  if (left != 1) model.seen.mounts.clear();
  if (left == 2) model.stash.emplace();
  if (left == 3) model.record->device.index.reset();
  REQUIRE(run(model, Wish(Healed{})));
  CHECK(model.record.has_value() == (left != 0));
}

TEST_CASE(
    "a stage of a raw block volume whose device is gone fails while published, and otherwise first unmounts the old "
    "bind") {
  Model model = staged_model();
  model.record->use.block = true;
  model.record->stagings.front().capability.block = true;
  model.record->stagings.front().capability.fstype.clear();
  Staged wish = staged_wish();
  wish.capability = model.record->stagings.front().capability;
  model.seen.devices.clear();
  model.seen.link = Observation::Link::closed;
  model.seen.connected = false;
  host::Mount& left = model.seen.mounts.front();
  left = {};
  left.target = kPath + "/" + kId;
  left.fstype = "devtmpfs";
  left.root = GENERATE("/nbd3", "/nbd3//deleted");
  const bool published = GENERATE(true, false);
  if (published) model.record->publishes.push_back({"/target", kPath, false});
  const auto decision = model.decide(wish);
  if (published) {
    CHECK(failure(decision) == errc::unavailable);
    return;
  }
  const auto* step = std::get_if<Step>(&decision);
  REQUIRE(step != nullptr);
  CHECK(std::holds_alternative<step::Umount>(*step));
  Decision last;
  REQUIRE(run(model, wish, &last));
  CHECK(std::holds_alternative<Done>(last));
}

TEST_CASE(
    "while the kernel runs a command on the device, every wish waits, and the reason names the command and its start",
    "[rule:7]") {
  Model model = staged_model();
  model.seen.command = device::Command{"disconnecting /dev/nbd3",
                                       std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000))};
  const Wish wish = GENERATE(Wish(Healed{}), Wish(staged_wish()), Wish(Unstaged{kPath}), Wish(Unpublished{"/target"}),
                             Wish(GivenUp{}));
  const auto decision = model.decide(wish);
  REQUIRE(std::holds_alternative<Wait>(decision));
  CHECK(std::get<Wait>(decision).why ==
        "disconnecting /dev/nbd3 of volume image-1 is under way in the kernel since 2023-11-14T22:13:20Z");
}
