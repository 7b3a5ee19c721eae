// The node's note in the metadata of provisioned images.
#include <algorithm>

#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

TEST_CASE(
    "a provisioner's image gets one note before its device is connected, with the client's address only if fencing is "
    "on") {
  const bool fencing = GENERATE(false, true);
  Policy policy = kPolicy;
  policy.fencing = fencing;
  Model model = fresh();
  model.policy = policy;
  model.seen.client = GENERATE("10.0.0.1:0/7", "[fd00::1]:0/7");
  Staged wish = staged_wish();
  wish.credential.user = "node";
  wish.reserved.emplace();
  const auto steps = run(model, Wish(wish));
  REQUIRE(steps);
  CHECK(std::ranges::count(*steps, Step(step::WriteNote{})) == 1);
  CHECK(std::ranges::find(*steps, Step(step::WriteNote{})) < std::ranges::find(*steps, Step(step::KernelConnect{})));
  const std::string address = model.seen.client.starts_with('[') ? "fd00::1" : "10.0.0.1";
  CHECK(model.metadata == Note{"node", fencing ? address : ""});
  CHECK(model.record->note == model.metadata);
  CHECK(std::holds_alternative<Done>(model.decide(Wish(Healed{}))));
}

TEST_CASE(
    "a heal renews the note of an old address after it reconnects the device, and succeeds without a note that was "
    "refused") {
  Model model = staged_model();
  model.policy.fencing = true;
  model.record->provisioned = true;
  model.record->user = "node";
  model.record->note = Note{"node", "10.0.0.1"};
  model.seen.client = "10.0.0.2:0/9";
  model.seen.connected = false;
  model.seen.facts.note_refused = GENERATE(false, true);
  Decision last;
  const auto steps = run(model, Wish(Healed{}), &last);
  REQUIRE(steps);
  CHECK(std::holds_alternative<Done>(last));
  if (model.seen.facts.note_refused) {
    CHECK(*steps == std::vector<Step>{step::KernelReconfigure{}});
  } else {
    CHECK(*steps == std::vector<Step>{step::KernelReconfigure{}, step::WriteNote{}, step::WriteRecord{}});
    CHECK(model.record->note == Note{"node", "10.0.0.2"});
  }
}

TEST_CASE("a stage of a volume without a device notes it again if the node's name has changed since the note") {
  const bool renamed = GENERATE(false, true);
  Model model = fresh();
  model.record = some_record(Phase::staging);
  model.record->names.driver = kPolicy.driver;
  if (renamed) model.record->names.node = "another";
  model.record->provisioned = true;
  model.record->user = "node";
  model.record->note = Note{"node", ""};
  Staged wish = staged_wish();
  wish.credential.user = "node";
  const auto steps = run(model, Wish(wish));
  REQUIRE(steps);
  CHECK(std::ranges::count(*steps, Step(step::WriteNote{})) == (renamed ? 1 : 0));
  CHECK(model.record->names.node == kPolicy.node);
  CHECK(model.record->note == Note{"node", ""});
}
