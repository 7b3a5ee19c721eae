// ceph-csi's stash beside what is staged.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::volume;

TEST_CASE("the stash tells what the attributes say and where the image was found, and of the device as soon as there is one") {
  Model model = fresh();
  Staged wish = staged_wish();
  wish.stash.unmap_options = "force";
  wish.stash.log_dir = "/logs";
  model.record = some_record(Phase::staging);
  model.record->source = {"cluster", "pool", "ns", "image", ""};
  Decision next = model.decide(Wish(wish));
  model.apply(std::get<Step>(next), Wish(wish));
  next = model.decide(Wish(wish));
  CHECK(std::get<Step>(next).stash == Stash{"pool", "ns", "image", "force", true, false, "", "/logs", ""});
  REQUIRE(run(model, Wish(wish)));
  CHECK(model.stash == Stash{"pool", "ns", "image", "force", true, false, "/dev/nbd3", "/logs", ""});
}

TEST_CASE("without a record and a stash a served device is umounted and left, one that nobody serves is not touched") {
  Model model = staged_model();
  model.record.reset();
  model.seen.link = Observation::Link::none;
  model.seen.attached = model.seen.image_open = model.seen.lock_held = false;
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
