// Freezing a filesystem for a snapshot: the record comes first, and whatever it names is thawed before anything waits
// for it.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

const Wish kFreeze{Frozen{"freeze-1", {}}};
const Wish kThaw{Thawed{}};

Model frozen() {
  Model model = staged_model();
  model.record->freeze = Freeze{"freeze-0"};
  model.freezes = Model::Freezes::agent;
  return model;
}

std::vector<std::string> names(const std::vector<Step>& steps) {
  std::vector<std::string> all;
  for (const auto& step : steps) all.emplace_back(name(step));
  return all;
}

}  // namespace

TEST_CASE("a freeze is written into the record before it begins, and leaves the record when it is thawed") {
  Model model = staged_model();
  const auto steps = run(model, kFreeze);
  REQUIRE(steps);
  CHECK(names(*steps) == std::vector<std::string>{"write_record", "freeze"});
  CHECK(model.record->freeze == Freeze{"freeze-1"});
  model.seen.facts = {};
  const auto thawed = run(model, kThaw);
  REQUIRE(thawed);
  CHECK(names(*thawed) == std::vector<std::string>{"thaw", "write_record"});
  CHECK_FALSE(model.record->freeze);
}

TEST_CASE("a freeze that the kernel refuses leaves the record, and is not thawed") {
  Model model = staged_model();
  model.freezes = Model::Freezes::somebody_else;
  Decision last = Done{};
  static_cast<void>(run(model, kFreeze, &last));
  CHECK(failure(last) == errc::failed_precondition);
  CHECK_FALSE(model.record->freeze);
  CHECK(model.freezes == Model::Freezes::somebody_else);
}

TEST_CASE("a freeze that the kernel refused is only taken out of the record, whatever comes next") {
  for (const Wish& wish : {kThaw, Wish(Unstaged{kPath})}) {
    Model model = frozen();
    model.freezes = Model::Freezes::somebody_else;
    model.seen.freeze_refused = true;
    REQUIRE(run(model, wish));
  }
}

TEST_CASE("a volume without a filesystem that this agent serves and writes is not frozen") {
  const auto refuses = [](auto change) {
    Model model = staged_model();
    change(model);
    return failure(model.decide(kFreeze)) == errc::failed_precondition;
  };
  CHECK(refuses([](Model& of) { of.record.reset(); }));
  CHECK(refuses([](Model& of) { of.record->use.block = true; }));
  CHECK(refuses([](Model& of) { of.record->use.read_only = true; }));
  CHECK(refuses([](Model& of) { of.record->failed = true; }));
  CHECK(refuses([](Model& of) { of.record->adopting.emplace(); }));
  CHECK(refuses([](Model& of) { of.seen.connected = false; }));
  CHECK(refuses([](Model& of) { of.seen.mounts.clear(); }));
  CHECK(refuses([](Model& of) { of.seen.mounts.front().filesystem_read_only = true; }));
}

TEST_CASE("a freeze waits neither for a helper nor for the thaw of an earlier one") {
  Model busy = staged_model();
  busy.seen.busy = true;
  CHECK(failure(busy.decide(kFreeze)) == errc::unavailable);
  CHECK(failure(busy.decide(kThaw)) == errc::unavailable);
  CHECK(failure(frozen().decide(kFreeze)) == errc::unavailable);
}

TEST_CASE("whatever writes the filesystem, or unmounts it last, thaws it first") {
  for (const Wish& wish : {Wish(Unstaged{kPath}), Wish(staged_wish())}) {
    Model model = frozen();
    const auto steps = run(model, wish);
    REQUIRE(steps);
    REQUIRE(steps->size() >= 2);
    CHECK(steps->front() == Step(step::Thaw{staging_target(kId, kPath)}));
    CHECK(model.freezes == Model::Freezes::nobody);
    if (model.record) CHECK_FALSE(model.record->freeze);
  }
}

TEST_CASE("a trim, a rotation of its key and a move to another Ceph user leave a frozen filesystem frozen") {
  for (const Wish& wish : {Wish(Trimmed{kPath}), Wish(Trimmed{kPath, 0}), Wish(Rekeyed{}), Wish(Authorized{})})
    CHECK(failure(frozen().decide(wish)) == errc::unavailable);
}

TEST_CASE("a volume without a server moves to another Ceph user although its filesystem may be frozen") {
  Model model = frozen();
  model.seen.connected = false;
  model.seen.link = Observation::Link::none;
  CHECK_FALSE(failure(model.decide(Wish(Authorized{}))) == errc::unavailable);
}

TEST_CASE("a frozen filesystem without a server is thawed after the healing, which does not wait for it") {
  Model model = frozen();
  model.seen.connected = false;
  model.seen.link = Observation::Link::none;
  CHECK(failure(model.decide(kThaw)) == errc::unavailable);
  REQUIRE(run(model, Wish(Healed{})));
  CHECK(model.record->freeze);
  REQUIRE(run(model, kThaw));
  CHECK_FALSE(model.record->freeze);
}

TEST_CASE("a freeze whose device is gone is forgotten, and one whose mount is not seen is not") {
  Model gone = frozen();
  gone.seen.devices.clear();
  gone.seen.mounts.clear();
  REQUIRE(run(gone, kThaw));
  CHECK_FALSE(gone.record->freeze);
  Model unseen = frozen();
  unseen.seen.mounts.clear();
  CHECK(failure(unseen.decide(kThaw)) == errc::unavailable);
}
