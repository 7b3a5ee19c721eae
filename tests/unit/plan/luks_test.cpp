// Encrypted volumes.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

/// Nothing of the volume is on the node; an earlier stage encrypted it.
Model encrypted() {
  return but(fresh(), [](Model& model) {
    model.kms_id = "default";
    model.encryption = "encrypted";
    model.luks = model.image_has_data = model.image_has_filesystem = true;
    model.slots = {0};
    model.filesystem_bytes = mapping().size;
  });
}

/// Staged, open and served.
Model open() {
  Model model = encrypted();
  const Model staged = staged_model();
  model.record = staged.record;
  model.record->encryption = Encryption{DeviceKms{"default"}};
  model.seen = staged.seen;
  model.seen.devices.front().holders.push_back(mapping());
  model.seen.mounts.front().dev_major = mapping().dev_major;
  model.seen.mounts.front().dev_minor = mapping().dev_minor;
  model.stash.emplace();
  model.keys.first = {true, true};
  return model;
}

void without_key(Model& model) {
  model.slots.clear();
  model.image_has_filesystem = false;
  model.encryption.clear();
}

/// The same with integrity.
Model open_with_integrity() {
  return but(open(), [](Model& model) {
    auto& holders = model.seen.devices.front().holders;
    holders.insert(holders.begin(), inner_mapping());
  });
}

/// A stage that did not end; `holders` are above its device.
Model interrupted(std::vector<device::UpperDevice> holders) {
  return but(open(), [&](Model& model) {
    model.seen.mounts.clear();
    model.seen.devices.front().holders = std::move(holders);
    model.record->stagings.front().complete = false;
  });
}

Staged with_refused_option() {
  Staged wish = staged_wish();
  wish.luks.refused = "encryptionCipher 'rot13' is not allowed";
  return wish;
}

Staged encrypted_read_only() {
  Staged wish = staged_wish();
  wish.capability.read_only = true;
  return wish;
}

/// Until it is known what the image holds.
std::vector<Step> looked() {
  return sequence({permitted(), connected(), {step::Look{Fact::encryption}, step::Look{Fact::luks}}});
}
/// From an open mapping with a filesystem to the end of the stage.
std::vector<Step> mapping_mounted() {
  return {
      step::Look{Fact::probe},         step::Fsck{},       step::Mount{kTarget}, step::Look{Fact::filesystem, kTarget},
      step::Look{Fact::format_marker}, step::WriteRecord{}};
}

/// A rotation from the moment in which both slots open with the old key.
std::vector<Step> rotated() {
  return {step::RemoveKey{0},     step::Look{Fact::keys}, step::NewKey{},
          step::Look{Fact::keys}, step::RemoveKey{1},     step::Look{Fact::keys}};
}

}  // namespace

TEST_CASE(
    "a fresh stage of an encrypted volume proves that its image is empty, writes the header, and makes the filesystem "
    "on the mapping") {
  Model model = fresh();
  model.kms_id = "default";
  model.filesystem_bytes = mapping().size;
  const auto steps = run(model, Wish(staged_wish()));
  REQUIRE(steps);
  CHECK(*steps == sequence({permitted(),
                            connected(),
                            {step::Look{Fact::encryption}, step::Look{Fact::luks}},
                            proven_empty_with_key(),
                            {step::LuksFormat{}, step::Look{Fact::luks}, step::LuksNote{}, step::LuksOpen{},
                             step::Look{Fact::probe}, step::Mkfs{}},
                            mounted()}));
  CHECK(model.record->encryption == Encryption{DeviceKms{"default"}});
  CHECK(model.stash->encrypted);
}

TEST_CASE(
    "a stage of a used encrypted volume opens its header, redoes a header of its own unfinished format, and otherwise "
    "refuses") {
  check({
      {"a finished header", encrypted(), Wish(staged_wish()),
       sequence({looked(), {step::LuksOpen{}}, mapping_mounted()})},
      {"a header without metadata", but(encrypted(), [](Model& model) { model.encryption = "encryptionPrepared"; }),
       Wish(staged_wish()), sequence({looked(), {step::LuksNote{}, step::LuksOpen{}}, mapping_mounted()})},
      {"a read-only stage",
       encrypted(),
       Wish(encrypted_read_only()),
       {step::Look{Fact::resolved}, step::WriteRecord{}, step::Fence{}, step::OpenImage{}, step::Look{Fact::stash},
        step::WriteStash{kPath, {}}, step::StartSession{}, step::KernelConnect{}, step::WriteStash{kPath, {}},
        step::WriteRecord{}, step::Tune{}, step::Look{Fact::encryption}, step::Look{Fact::luks}, step::LuksOpen{},
        step::Look{Fact::probe}, step::Mount{kTarget}, step::WriteRecord{}}},
      {"a repeated stage", open(), Wish(staged_wish()), {}},
      {"unencrypted data",
       but(encrypted(),
           [](Model& model) {
             model.luks = false;
             model.slots.clear();
           }),
       Wish(staged_wish()), looked(), errc::failed_precondition},
      {"metadata, but no header",
       but(encrypted(),
           [](Model& model) {
             model.luks = model.image_has_data = model.image_has_filesystem = false;
             model.slots.clear();
           }),
       Wish(staged_wish()), looked(), errc::not_empty},
      {"a header without a key, and no format marker", but(encrypted(), without_key), Wish(staged_wish()),
       sequence({looked(), {step::Look{Fact::format_marker}}}), errc::failed_precondition},
      {"a header without a key, from a format that this record began",
       but(open(),
           [](Model& model) {
             without_key(model);
             model.seen.mounts.clear();
             model.seen.devices.front().holders.clear();
             model.record->stagings.front().complete = false;
             model.record->format = Format{model.marker = "luksFormat by 10.0.0.1:0/1"};
           }),
       Wish(staged_wish()),
       sequence(
           {{step::Look{Fact::stash}, step::WriteStash{kPath, {}}, step::Look{Fact::encryption}, step::Look{Fact::luks},
             step::Look{Fact::format_marker}, step::Look{Fact::first_key}, step::LuksFormat{}, step::Look{Fact::luks},
             step::LuksNote{}, step::LuksOpen{}, step::Look{Fact::probe}, step::Mkfs{}},
            mounted()})},
  });
}

TEST_CASE("an option that is not allowed refuses a new header, and a volume that has one opens") {
  check({
      {"no header", but(fresh(), [](Model& model) { model.kms_id = "default"; }), Wish(with_refused_option()),
       sequence({permitted(), connected(), {step::Look{Fact::encryption}, step::Look{Fact::luks}}}),
       errc::invalid_argument},
      {"a header", encrypted(), Wish(with_refused_option()),
       sequence({looked(), {step::LuksOpen{}}, mapping_mounted()})},
  });
}

TEST_CASE("a stage closes the mappings that a death left half-way, and no others") {
  const std::vector<Step> stash{step::Look{Fact::stash}, step::WriteStash{kPath, {}}};
  check({
      {"the inner one alone", interrupted({inner_mapping()}), Wish(staged_wish()),
       sequence({stash,
                 {step::LuksClose{}, step::Look{Fact::encryption}, step::Look{Fact::luks}, step::LuksOpen{}},
                 mapping_mounted()})},
      {"what libcryptsetup has while it formats",
       interrupted({{.name = "dm-1", .mapping = "temporary-cryptsetup-0815"}}), Wish(staged_wish()),
       sequence({stash,
                 {step::LuksClose{}, step::Look{Fact::encryption}, step::Look{Fact::luks}, step::LuksOpen{}},
                 mapping_mounted()})},
      {"those by which a format wrote its tags",
       but(interrupted({inner_mapping(), mapping()}),
           [](Model& model) {
             without_key(model);
             model.record->format = Format{model.marker = "luksFormat by 10.0.0.1:0/1"};
           }),
       Wish(staged_wish()),
       sequence({stash,
                 {step::Look{Fact::luks}, step::LuksClose{}, step::Look{Fact::encryption},
                  step::Look{Fact::format_marker}, step::Look{Fact::first_key}, step::LuksFormat{},
                  step::Look{Fact::luks}, step::LuksNote{}, step::LuksOpen{}, step::Look{Fact::probe}, step::Mkfs{}},
                 mounted()})},
      {"of a format that ended",
       but(interrupted({inner_mapping(), mapping()}),
           [](Model& model) {
             model.image_has_filesystem = false;
             model.record->format = Format{model.marker = "luksFormat by 10.0.0.1:0/1"};
           }),
       Wish(staged_wish()),
       sequence({stash,
                 {step::Look{Fact::luks}, step::Look{Fact::probe}, step::Look{Fact::format_marker}, step::Mkfs{}},
                 mounted()})},
  });
}

TEST_CASE("a volume with integrity is never resized, and both its mappings close before its device") {
  const std::vector<Step> down{step::LuksClose{},      step::Look{Fact::unused}, step::Disconnect{},
                               step::StopSession{},    step::CloseImage{},       step::Look{Fact::stash},
                               step::DropStash{kPath}, step::DropRecord{}};
  check({
      {"unstaged", open_with_integrity(), Wish(Unstaged{kPath}),
       sequence({{step::Umount{kTarget}, step::WriteRecord{}}, down})},
      {"unstaged after a death between them", interrupted({inner_mapping()}), Wish(Unstaged{kPath}),
       sequence({{step::Umount{kTarget}, step::WriteRecord{}}, down})},
      {"expanded",
       but(open_with_integrity(), [](Model& model) { model.cluster_bytes = kTwo; }),
       Wish(Expanded{kPath, kTwo}),
       {},
       errc::failed_precondition},
      {"another's mapping above its own",
       but(open_with_integrity(),
           [](Model& model) { model.seen.devices.front().holders.push_back({.name = "dm-7", .mapping = "vg-data"}); }),
       Wish(Unstaged{kPath}),
       {step::Umount{kTarget}, step::WriteRecord{}},
       errc::in_use},
  });
}

TEST_CASE(
    "a mapping closes before its device and grows after it, a heal leaves it alone, and an interrupted key rotation is "
    "completed") {
  const auto keys = [](Keys now) { return but(open(), [now](Model& model) { model.keys = now; }); };
  check({
      {"unstaged: the mapping closes before its device",
       open(),
       Wish(Unstaged{kPath}),
       {step::Umount{kTarget}, step::WriteRecord{}, step::LuksClose{}, step::Look{Fact::unused}, step::Disconnect{},
        step::StopSession{}, step::CloseImage{}, step::Look{Fact::stash}, step::DropStash{kPath}, step::DropRecord{}}},
      {"expanded: device, mapping, filesystem",
       but(open(),
           [](Model& model) {
             model.cluster_bytes = kTwo;
             model.seen.image_size = model.seen.devices.front().size = 1 << 30;
             model.filesystem_bytes = 1 << 28;
           }),
       Wish(Expanded{kPath, kTwo}),
       {step::Look{Fact::image_size}, step::KernelResize{}, step::LuksResize{}, step::Look{Fact::filesystem, kTarget},
        step::Grow{kTarget}}},
      {"healed, without its passphrase",
       but(open(),
           [](Model& model) {
             model.seen.link = Observation::Link::none;
             model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
             model.ownership.lock = Lock::our_dead;
           }),
       Wish(Healed{}),
       {step::Fence{}, step::OpenImage{}, step::Look{Fact::ownership}, step::WriteRecord{}, step::Lock{},
        step::StartSession{}, step::KernelReconfigure{}, step::WriteRecord{}}},
      {"key rotation", open(), Wish(Rekeyed{}),
       sequence({{step::Look{Fact::keys}, step::ConfirmKey{}, step::Look{Fact::keys}, step::AddKey{},
                  step::Look{Fact::keys}},
                 rotated()})},
      {"key rotation, after one that lacks its last step", keys({{true, true}, {true, false}}), Wish(Rekeyed{}),
       sequence({{step::Look{Fact::keys}, step::ConfirmKey{}, step::Look{Fact::keys}, step::RemoveKey{1},
                  step::Look{Fact::keys}, step::AddKey{}, step::Look{Fact::keys}},
                 rotated()})},
      {"key rotation, after one that had only begun", keys({{true, true}, {true, true}}), Wish(Rekeyed{}),
       sequence({{step::Look{Fact::keys}, step::ConfirmKey{}, step::Look{Fact::keys}}, rotated()})},
      {"key rotation, after one whose new key the KMS did not take", keys({{true, false}, {true, true}}),
       Wish(Rekeyed{}), sequence({{step::Look{Fact::keys}, step::ConfirmKey{}, step::Look{Fact::keys}}, rotated()})},
      {"key rotation, but the KMS's key opens nothing",
       keys({{true, false}, {true, false}}),
       Wish(Rekeyed{}),
       {step::Look{Fact::keys}},
       errc::unauthenticated},
  });
}
