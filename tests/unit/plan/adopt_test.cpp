// Volumes that ceph-csi staged, with rbd-nbd or the kernel client.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

const std::string kPeer = "10.0.0.1:0/9";  ///< rbd-nbd's client

/// Served and mounted. This agent has no record of it.
Model by_rbd_nbd() {
  Model model = fresh();
  model.seen.devices.push_back(device_seen(3));
  model.seen.mounts.push_back(mount_of(model.seen.devices.front(), kTarget));
  model.stash = Stash{"pool", "", "image", "", true, false, "/dev/nbd3", "", ""};
  model.other_serves = model.image_has_filesystem = model.image_has_data = true;
  model.ownership.lock = Lock::other;
  model.ownership.self = "10.0.0.1:0/1";
  model.ownership.owner = kPeer;
  return model;
}

/// The same after a stage by this agent.
Model adopted() {
  Model model = by_rbd_nbd();
  model.record = some_record(Phase::staged);
  model.record->device.index = 3;
  model.record->adopting.emplace();
  return model;
}

Model rbd_nbd_died() {
  return but(adopted(), [](Model& model) { model.other_serves = false; });
}

Model by_krbd() {
  return but(by_rbd_nbd(), [](Model& model) {
    model.seen.devices.front().kind = device::Kind::krbd;
    model.seen.devices.front().backend.clear();
    model.stash = Stash{"pool", "", "image", "", false, false, "", "", ""};
    model.other_serves = false;
  });
}

Staged wish_of_krbd() {
  Staged wish = staged_wish();
  wish.mounter = Mounter::krbd;
  return wish;
}

/// Until the image is open and its owner is known.
std::vector<Step> opened_and_looked() {
  return {step::Look{Fact::served_by_other}, step::Fence{}, step::OpenImage{}, step::Look{Fact::ownership}};
}
/// From the lock to a device that this agent serves.
std::vector<Step> taken_over() {
  return {step::Lock{},         step::Look{Fact::format_marker},
          step::StartSession{}, step::KernelReconfigure{},
          step::WriteRecord{},  step::Tune{}};
}
/// The same with a device that lost a cache.
std::vector<Step> taken_over_with_loss() {
  auto steps = taken_over();
  steps.insert(steps.end() - 2, {step::Look{Fact::stash}, step::WriteStash{kPath, {}}});
  return steps;
}
/// What a stage by this agent adds to a volume that ceph-csi staged.
std::vector<Step> recorded() { return {step::Look{Fact::stash}, step::Look{Fact::resolved}, step::WriteRecord{}}; }

}  // namespace

TEST_CASE(
    "a stage records a volume that ceph-csi staged if the stash matches, and the device stays with a living rbd-nbd") {
  check({
      {"staged", by_rbd_nbd(), Wish(staged_wish()), sequence({recorded(), {step::Look{Fact::served_by_other}}})},
      {"staged of another image than the stash names",
       but(by_rbd_nbd(), [](Model& model) { model.stash->image = "another"; }),
       Wish(staged_wish()),
       {step::Look{Fact::stash}, step::Look{Fact::resolved}},
       errc::failed_precondition},
      {"staged without a stash",
       but(by_rbd_nbd(), [](Model& model) { model.stash.reset(); }),
       Wish(staged_wish()),
       {step::Look{Fact::stash}},
       errc::failed_precondition},
      {"staged, with the kernel client", by_krbd(), Wish(wish_of_krbd()), recorded()},
      {"healed while rbd-nbd lives", adopted(), Wish(Healed{}), {step::Look{Fact::served_by_other}}},
  });
}

TEST_CASE(
    "the client of a dead rbd-nbd is fenced like the agent's own clients if it left its lock and cannot be alive") {
  check({
      {"rbd-nbd died with the lock", rbd_nbd_died(), Wish(Healed{}),
       sequence({opened_and_looked(),
                 {step::WriteRecord{}, step::Inherit{kPeer}, step::Fence{}, step::Look{Fact::ownership},
                  step::WriteRecord{}},
                 taken_over_with_loss()})},
      {"rbd-nbd's watch is still there",
       but(rbd_nbd_died(), [](Model& model) { model.ownership.foreign_watchers = {kPeer}; }), Wish(Healed{}),
       opened_and_looked(), errc::ok, true},
      {"rbd-nbd released its lock",
       but(rbd_nbd_died(),
           [](Model& model) {
             model.ownership.lock = Lock::none;
             model.ownership.owner.clear();
           }),
       Wish(Healed{}), sequence({opened_and_looked(), {step::Look{Fact::attachment}}}), errc::unproven},
      {"another node has the lock", but(rbd_nbd_died(), [](Model& model) { model.ownership.owner = "10.0.0.2:0/5"; }),
       Wish(Healed{}), sequence({opened_and_looked(), {step::Look{Fact::attachment}}}), errc::unproven},
      {"a living rbd-nbd is told to end, by hand", adopted(), Wish(Adopted{}),
       sequence({opened_and_looked(),
                 {step::Dismiss{}, step::Look{Fact::served_by_other}, step::Look{Fact::ownership}, step::WriteRecord{}},
                 taken_over()})},
  });
}

TEST_CASE("a volume that was attached anew while rbd-nbd serves it is proven by rbd-nbd's lock alone") {
  const auto anew = [](std::string owner, std::vector<std::string> watchers) {
    Model model = adopted();
    model.record->proof.attachment_uid = "uid-1";
    model.ownership.lock = owner.empty() ? Lock::none : Lock::other;
    model.ownership.owner = std::move(owner);
    model.ownership.foreign_watchers = std::move(watchers);
    return model;
  };
  const Wish wish = Attached{"uid-2"};
  const std::string elsewhere = "10.0.0.2:0/5";
  const std::vector<Step> looked{step::Look{Fact::served_by_other}, step::WriteRecord{}, step::Look{Fact::beside}};
  check({
      {"rbd-nbd has the lock", anew(kPeer, {kPeer}), wish,
       sequence(
           {looked, {step::WriteRecord{}, step::Look{Fact::stash}, step::WriteStash{kPath, {}}, step::WriteRecord{}}})},
      {"rbd-nbd has the image open without a lock", anew("", {kPeer}), wish, looked, errc::failed_precondition},
      {"rbd-nbd has the lock, and no watch", anew(kPeer, {}), wish, looked, errc::failed_precondition},
      {"another node has the lock", anew(elsewhere, {kPeer, elsewhere}), wish, looked, errc::failed_precondition},
      {"another client has the image open, too", anew(kPeer, {kPeer, elsewhere}), wish, looked, errc::unavailable},
      {"rbd-nbd has ended",
       but(anew(kPeer, {kPeer}), [](Model& model) { model.other_serves = false; }),
       wish,
       {step::Look{Fact::served_by_other}},
       errc::unavailable},
  });
}

TEST_CASE("the record asks for a failed flush if rbd-nbd may have died with writes in its cache, and only then") {
  const auto notes = [](Model model, const Wish& wish = Wish(Healed{})) {
    REQUIRE(run(model, wish));
    REQUIRE(model.record);
    return model.record->cache_lost;
  };
  const auto no_lock = [](Model& model) {
    model.exclusive_lock = false;
    model.ownership.lock = Lock::none;
    model.ownership.owner.clear();
  };
  const auto just_now = [](Model& model) { model.seen.other_dead_for = std::chrono::seconds(2); };
  const auto watched = [](Model& model) { model.ownership.foreign_watchers = {kPeer}; };
  CHECK(notes(rbd_nbd_died()));
  CHECK_FALSE(notes(adopted(), Wish(Adopted{})));
  CHECK_FALSE(notes(but(rbd_nbd_died(), [](Model& model) { model.seen.devices.front().io_timeout_ms = 1000; })));
  CHECK_FALSE(notes(but(rbd_nbd_died(), [](Model& model) { model.record->source.serving.cache_off = true; })));
  CHECK(notes(but(rbd_nbd_died(), [](Model& model) {
    model.seen.devices.front().io_timeout_ms = 1000;
    model.record->source.serving.same_timeout = true;
  })));
  CHECK_FALSE(notes(but(rbd_nbd_died(), [](Model& model) {
    model.ownership.lock = Lock::none;
    model.ownership.owner.clear();
  })));
  // Without the lock only a watch shows how rbd-nbd ended, and only as long as a dead client's watch would last.
  CHECK(notes(but(rbd_nbd_died(), no_lock)));
  CHECK_FALSE(notes(but(but(rbd_nbd_died(), no_lock), just_now)));
  CHECK(notes(but(but(but(rbd_nbd_died(), no_lock), just_now), watched)));
  CHECK_FALSE(notes(but(adopted(), no_lock), Wish(Adopted{})));
}

TEST_CASE("a cache that metadata switched on is noted before it is told, although the attributes switched it off") {
  const bool attributes = GENERATE(true, false);
  Model model = rbd_nbd_died();
  model.record->source.serving.cache_off = attributes;
  model.seen.facts.unsafe_config = Error{errc::unsafe_config, "the image has rbd_cache=true"};
  Decision last;
  REQUIRE(run(model, Wish(Healed{}), &last));
  CHECK(failure(last) == errc::unsafe_config);
  CHECK(model.record->cache_lost == attributes);
  model.seen.facts = {};
  REQUIRE(run(model, Wish(Healed{})));
  CHECK(model.record->cache_lost);
}

TEST_CASE("the record asks for no failed flush if the only client that died was noted as having no cache",
          "[failure:166]") {
  const auto notes = [](Model model) {
    model.record->adopting->uncached = kPeer;
    REQUIRE(run(model, Wish(Healed{})));
    return model.record->cache_lost;
  };
  CHECK_FALSE(notes(rbd_nbd_died()));
  CHECK(notes(but(rbd_nbd_died(), [](Model& model) { model.ownership.owner = "10.0.0.1:0/10"; })));
  const auto no_lock = [](Model& model) {
    model.exclusive_lock = false;
    model.ownership.lock = Lock::none;
    model.ownership.owner.clear();
    model.seen.other_dead_for = std::chrono::seconds(2);
    model.ownership.foreign_watchers = {kPeer};
  };
  CHECK_FALSE(notes(but(rbd_nbd_died(), no_lock)));
  const auto another = [](Model& model) { model.ownership.foreign_watchers.push_back("10.0.0.1:0/10"); };
  CHECK(notes(but(but(rbd_nbd_died(), no_lock), another)));
}

TEST_CASE("the client of an rbd-nbd without a cache is noted only if it is this node's only client of the image") {
  const auto noted = [](std::vector<std::string> watchers, std::string owner) {
    Model model = adopted();
    model.seen.facts.uncached.emplace();
    model.seen.facts.uncached->self = "10.0.0.1:0/1";
    model.seen.facts.uncached->foreign_watchers = std::move(watchers);
    model.seen.facts.uncached->owner = std::move(owner);
    REQUIRE(run(model, Wish(Healed{})));
    return model.record->adopting->uncached;
  };
  CHECK(noted({kPeer}, kPeer) == kPeer);
  CHECK(noted({kPeer, "10.0.0.2:0/5"}, "") == kPeer);
  CHECK(noted({}, kPeer).empty());
  CHECK(noted({"10.0.0.2:0/5"}, "").empty());
  CHECK(noted({kPeer, "10.0.0.1:0/10"}, kPeer).empty());
  CHECK(noted({kPeer}, "10.0.0.1:0/10").empty());
}

TEST_CASE("the record asks for failed flushes until an operator accepts the loss, and the link follows the record") {
  Model model = staged_model();
  model.record->cache_lost = model.seen.fails_flushes = true;
  REQUIRE(run(model, Wish(Healed{})));
  CHECK(model.record->cache_lost);
  const auto steps = run(model, Wish(Healed{.loss_accepted = true}));
  CHECK(steps == std::vector<Step>{step::WriteRecord{}, step::AcceptLoss{}});
  CHECK_FALSE(model.record->cache_lost);
}

TEST_CASE("the stash has a lost cache until its loss is accepted, and gives it to the record of its device") {
  Model model = staged_model();
  model.stash = by_rbd_nbd().stash;
  model.record->cache_lost = model.seen.fails_flushes = true;
  CHECK(run(model, Wish(Healed{})) == std::vector<Step>{step::Look{Fact::stash}, step::WriteStash{kPath, {}}});
  CHECK(model.stash->cache_lost);
  Model forgotten = by_rbd_nbd();
  forgotten.stash = model.stash;
  REQUIRE(run(forgotten, Wish(staged_wish())));
  CHECK(forgotten.record->cache_lost);
  model.seen.facts = {};
  CHECK(run(model, Wish(Healed{.loss_accepted = true})) == std::vector<Step>{step::Look{Fact::stash},
                                                                             step::WriteStash{kPath, {}},
                                                                             step::WriteRecord{}, step::AcceptLoss{}});
  CHECK_FALSE(model.stash->cache_lost);
}

TEST_CASE("a loss is accepted only for a volume that is served") {
  Model model = rbd_nbd_died();
  REQUIRE(run(model, Wish(Healed{.loss_accepted = true})));
  CHECK_FALSE(model.record->cache_lost);
  CHECK_FALSE(model.seen.fails_flushes);
  CHECK(model.seen.connected);
}

TEST_CASE("nobody accepts the loss of a volume that was given up") {
  Model model = staged_model();
  model.record->failed = model.record->cache_lost = true;
  Decision last = model.decide(Wish(Healed{.loss_accepted = true}));
  CHECK(failure(last) == errc::lost);
}

TEST_CASE("the record still asks for a failed flush after it gets its device's index for the first time",
          "[failure:166]") {
  Model model = staged_model();
  model.record->device.index.reset();
  model.record->cache_lost = true;
  REQUIRE(run(model, Wish(Healed{})));
  CHECK(model.record->device.index);
  CHECK(model.record->cache_lost);
}

TEST_CASE("the record of a new device does not ask for the previous device's failed flush", "[failure:166]") {
  Model model = staged_model();
  model.seen.devices.clear();
  model.seen.link = Observation::Link::none;
  model.seen.connected = false;
  model.record->cache_lost = true;
  const Wish wish = Staged(staged_wish());
  for (int steps = 0; steps < 30; ++steps) {
    const Decision next = model.decide(wish);
    REQUIRE(std::holds_alternative<Step>(next));
    if (std::holds_alternative<step::StartSession>(std::get<Step>(next))) break;
    model.apply(std::get<Step>(next), wish);
  }
  CHECK_FALSE(model.record->cache_lost);
}

TEST_CASE("an unstage of a volume that ceph-csi staged follows the agent's record, or else the stash") {
  const std::vector<Step> without_server{step::Umount{kTarget}, step::Look{Fact::unused}, step::Disconnect{},
                                         step::DropStash{kPath}};
  check({
      {"without a record", by_rbd_nbd(), Wish(Unstaged{kPath}),
       sequence({{step::Look{Fact::stash}, step::Look{Fact::served_by_other}}, without_server})},
      {"without a record, and rbd-nbd is dead",
       but(by_rbd_nbd(), [](Model& model) { model.other_serves = false; }),
       Wish(Unstaged{kPath}),
       {step::Look{Fact::stash}, step::Look{Fact::served_by_other}},
       errc::unavailable},
      {"without a record, with the kernel client",
       by_krbd(),
       Wish(Unstaged{kPath}),
       {step::Look{Fact::stash}, step::Umount{kTarget}, step::Look{Fact::unused}, step::UnmapKrbd{},
        step::DropStash{kPath}}},
      {"with a record",
       adopted(),
       Wish(Unstaged{kPath}),
       {step::Look{Fact::served_by_other}, step::Umount{kTarget}, step::WriteRecord{}, step::Look{Fact::unused},
        step::Disconnect{}, step::Look{Fact::stash}, step::DropStash{kPath}, step::DropRecord{}}},
  });
}
