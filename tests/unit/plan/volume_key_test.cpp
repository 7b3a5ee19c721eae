// The key of an encrypted volume, whose KMS may get what was sent at any later time.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

/// Empty, and its KMS has no key of it.
Model keyless() {
  return but(fresh(), [](Model& model) {
    model.kms_id = "kms";
    model.filesystem_bytes = mapping().size;
    model.first_key.there = false;
    model.first_key.writes.version = 0;
  });
}

/// The same at a KMS that takes whatever arrives last.
Model at_plain_kms(bool sent, bool at_hand) {
  return but(keyless(), [&](Model& model) {
    model.first_key.writes = {.ordered = false};
    model.first_key.sent = sent;
    model.first_key.at_hand = at_hand;
  });
}

std::vector<Step> until_key() {
  return sequence({permitted(),
                   connected(),
                   {step::Look{Fact::encryption}, step::Look{Fact::luks}, step::Look{Fact::format_marker},
                    step::Look{Fact::has_data}, step::Look{Fact::first_key}}});
}
std::vector<Step> formatted() {
  return sequence({{step::WriteRecord{}, step::SetFormatMarker{}, step::LuksFormat{}, step::Look{Fact::luks},
                    step::LuksNote{}, step::LuksOpen{}, step::Look{Fact::probe}, step::Mkfs{}},
                   mounted()});
}
std::vector<Step> made_and_formatted() {
  return sequence({until_key(), {step::MakeKey{}, step::Look{Fact::first_key}}, formatted()});
}

/// A served volume with an open mapping.
Model open_with(Keys keys) {
  Model model = but(fresh(), [](Model& model) {
    model.kms_id = "kms";
    model.encryption = "encrypted";
    model.luks = model.image_has_data = model.image_has_filesystem = true;
    model.slots = {0};
  });
  const Model staged = staged_model();
  model.record = staged.record;
  model.record->encryption = Encryption{DeviceKms{"kms"}};
  model.seen = staged.seen;
  model.seen.devices.front().holders.push_back(mapping());
  model.keys = keys;
  return model;
}

Step next(const Decision& decision) {
  REQUIRE(std::holds_alternative<Step>(decision));
  return std::get<Step>(decision);
}

Decision decided(Model model, Keys keys, std::optional<KeyStored> stored = std::nullopt) {
  model.seen.facts.keys = keys;
  model.seen.facts.key_stored = stored;
  return model.decide(Wish(Rekeyed{}));
}

}  // namespace

TEST_CASE(
    "a first key is at its KMS before a format begins, and one that may still arrive is never followed by another") {
  check({
      {"a KMS that counts versions", keyless(), Wish(staged_wish()), made_and_formatted()},
      {"a KMS that takes whatever arrives last", at_plain_kms(false, false), Wish(staged_wish()), made_and_formatted()},
      {"the same, and this agent has what was sent", at_plain_kms(true, true), Wish(staged_wish()),
       made_and_formatted()},
      {"the same, and the agent that sent it died", at_plain_kms(true, false), Wish(staged_wish()), until_key(),
       errc::failed_precondition},
      {"the same, and it has arrived",
       but(at_plain_kms(true, false), [](Model& model) { model.first_key.there = model.first_key.is_sent = true; }),
       Wish(staged_wish()), sequence({until_key(), formatted()})},
      {"the same, but another key is there",
       but(at_plain_kms(true, false), [](Model& model) { model.first_key.there = true; }), Wish(staged_wish()),
       until_key(), errc::failed_precondition},
      {"a key that a provisioner made, and that is missing",
       but(keyless(), [](Model& model) { model.encryption = "encryptionPrepared"; }), Wish(staged_wish()), until_key(),
       errc::failed_precondition},
  });
}

TEST_CASE("encrypted files get their first key as a LUKS volume does, and before mkfs") {
  const auto files = [](Model model) {
    model.encryption_type = "file";
    model.filesystem_bytes = 1 << 30;
    return model;
  };
  const auto until = sequence({permitted(),
                               connected(),
                               {step::Look{Fact::probe}, step::Look{Fact::format_marker}, step::Look{Fact::has_data},
                                step::Look{Fact::first_key}}});
  check({
      {"a KMS without a key", files(keyless()), Wish(staged_wish()),
       sequence({until,
                 {step::MakeKey{}, step::Look{Fact::first_key}, step::WriteRecord{}, step::SetFormatMarker{},
                  step::Mkfs{}, step::Look{Fact::probe}, step::Mount{kTarget}, step::Look{Fact::folder, kTarget},
                  step::FscryptMake{kTarget}, step::Look{Fact::filesystem, kTarget}, step::RemoveFormatMarker{},
                  step::WriteRecord{}}})},
      {"one that is on its way to a KMS that takes whatever arrives last", files(at_plain_kms(true, false)),
       Wish(staged_wish()), until, errc::failed_precondition},
  });
}

TEST_CASE("a KMS that does not show the first key that it has just stored gets no other in this try") {
  Model model = keyless();
  REQUIRE(run(model, Wish(staged_wish())));
  Model lagging = model;
  lagging.record->stagings.front().complete = false;
  lagging.seen.mounts.clear();
  lagging.seen.devices.front().holders.clear();
  lagging.seen.facts.encryption = "";
  lagging.seen.facts.luks = host::LuksHeader{{host::Probe::Kind::nothing, ""}, {}};
  lagging.seen.facts.format_marker = "";
  lagging.seen.facts.has_data = false;
  lagging.seen.facts.key_stored.reset();
  lagging.seen.facts.first_key = FirstKey{false, {true, 0}};
  CHECK(next(lagging.decide(Wish(staged_wish()))) == Step(step::MakeKey{}));
  lagging.seen.facts.key_stored = KeyStored{true, 1};
  CHECK(failure(lagging.decide(Wish(staged_wish()))) == errc::unavailable);
}

TEST_CASE("a KMS without versions rotates no key, and its header stays as it is") {
  check({
      {"rotated",
       open_with({.first = {true, true}, .second = {}, .writes = {.ordered = false}}),
       Wish(Rekeyed{}),
       {step::Look{Fact::keys}},
       errc::failed_precondition},
  });
}

TEST_CASE("a slot that does not open is wiped only after the KMS has stored its key again, and has shown it",
          "[rule:200]") {
  const Keys late{.first = {true, false}, .second = {true, true}, .writes = {true, 4}};
  const Model model = open_with(late);
  CHECK(next(decided(model, late)) == Step(step::ConfirmKey{}));
  CHECK(failure(decided(model, late, KeyStored{false, 5})) == errc::unavailable);
  Keys shown = late;
  shown.writes.version = 5;
  CHECK(next(decided(model, shown, KeyStored{false, 5})) == Step(step::RemoveKey{0}));
}

TEST_CASE("the old key of a rotation is wiped only when the KMS shows the new one") {
  const Keys standby{.first = {true, false}, .second = {true, true}, .writes = {true, 4}};
  const Model model = open_with(standby);
  CHECK(failure(decided(model, standby, KeyStored{true, 5})) == errc::unavailable);
  const Keys shown{.first = {true, true}, .second = {true, false}, .writes = {true, 5}};
  CHECK(next(decided(model, shown, KeyStored{true, 5})) == Step(step::RemoveKey{1}));
}
