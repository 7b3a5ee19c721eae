// The kernel client.
#include "krbd.hpp"

#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

Staged krbd_wish() {
  Staged wish = staged_wish();
  wish.mounter = Mounter::krbd;
  return wish;
}

Staged read_only_wish() {
  Staged wish = krbd_wish();
  wish.capability.read_only = true;
  return wish;
}

Staged block_wish() {
  Staged wish = krbd_wish();
  wish.capability.block = true;
  wish.capability.fstype.clear();
  return wish;
}

Model filled() {
  return but(fresh(), [](Model& model) { model.image_has_filesystem = model.image_has_data = true; });
}

Model mapped() {
  return but(filled(), [](Model& model) {
    model.record = some_record(Phase::staged);
    model.record->device.kind = device::Kind::krbd;
    model.record->device.index = 3;
    model.seen.devices.push_back(device_seen(3, device::Kind::krbd));
    model.seen.devices.front().size = 1 << 30;
    model.seen.mounts.push_back(mount_of(model.seen.devices.front(), kTarget));
    model.stash.emplace();
  });
}

void seen_elsewhere(Model& model) { model.ownership.foreign_watchers = {"10.0.0.2:0/5"}; }

/// From the stash to a record that names the device.
std::vector<Step> map_and_name() {
  return {step::Look{Fact::stash}, step::WriteStash{kPath, {}}, step::MapKrbd{}, step::Look{Fact::ownership},
          step::WriteRecord{}};
}
std::vector<Step> intended() {
  return {step::Look{Fact::resolved}, step::WriteRecord{}, step::Look{Fact::stash}, step::WriteStash{kPath, {}}};
}
/// The end of a stage of an image that held a filesystem.
std::vector<Step> checked_and_mounted() {
  return {
      step::Look{Fact::probe},         step::Fsck{},       step::Mount{kTarget}, step::Look{Fact::filesystem, kTarget},
      step::Look{Fact::format_marker}, step::WriteRecord{}};
}

}  // namespace

TEST_CASE(
    "a fresh stage with the kernel client checks who has the image before and after mapping, and finally closes the "
    "image") {
  Model model = fresh();
  auto wish = staged_wish();
  wish.mounter = Mounter::krbd;
  const auto steps = run(model, Wish(wish));
  REQUIRE(steps);
  CHECK(*steps == sequence({permitted(),
                            map_and_name(),
                            {step::Look{Fact::probe}},
                            proven_empty(),
                            {step::Look{Fact::ownership}, step::WriteRecord{}, step::Mkfs{}},
                            mounted(),
                            {step::CloseImage{}}}));
}

TEST_CASE(
    "a stage with the kernel client maps and mounts an image, unless the stage may write and another client has the "
    "image") {
  check({
      {"an image with a filesystem", filled(), Wish(krbd_wish()),
       sequence({permitted(), map_and_name(), checked_and_mounted(), {step::CloseImage{}}})},
      {"a block volume", fresh(), Wish(block_wish()),
       sequence({permitted(),
                 map_and_name(),
                 {step::Bind{kTarget}, step::Look{Fact::format_marker}, step::WriteRecord{}, step::CloseImage{}}})},
      {"a read-only stage, which looks for no other client", filled(), Wish(read_only_wish()),
       sequence({intended(),
                 {step::MapKrbd{}, step::WriteRecord{}, step::Look{Fact::probe}, step::Mount{kTarget},
                  step::WriteRecord{}}})},
      {"an image that another client has open", but(filled(), seen_elsewhere), Wish(krbd_wish()),
       sequence({opened(), {step::Look{Fact::holders}}}), errc::in_use},
      {"an image with a dead client's lock",
       but(filled(),
           [](Model& model) {
             model.ownership.lock = Lock::other;
             model.ownership.owner = "10.0.0.2:0/5";
             model.holders = {Holder{.address = "10.0.0.2:0/5", .locks = true}};
           }),
       Wish(krbd_wish()),
       sequence({opened(),
                 {step::Look{Fact::attachment}, step::Look{Fact::holders}, step::Evict{}, step::Look{Fact::ownership}},
                 map_and_name(),
                 checked_and_mounted(),
                 {step::CloseImage{}}})},
      {"an image that another client opened after the map",
       but(mapped(),
           [](Model& model) {
             seen_elsewhere(model);
             model.record->stagings.front().complete = false;
             model.stash->pool = "pool";
             model.stash->image = "image";
             model.seen.mounts.clear();
           }),
       Wish(krbd_wish()),
       {step::Look{Fact::stash}, step::Fence{}, step::OpenImage{}, step::Look{Fact::ownership}, step::UnmapKrbd{},
        step::WriteRecord{}, step::Look{Fact::holders}},
       errc::in_use},
      {"an encrypted volume, whose ownership is proven again after the mark, and which is noted as encrypted at the "
       "end",
       but(fresh(),
           [](Model& model) {
             model.kms_id = "default";
             model.filesystem_bytes = mapping().size;
           }),
       Wish(krbd_wish()),
       sequence({permitted(),
                 map_and_name(),
                 {step::Look{Fact::encryption}, step::Look{Fact::luks}},
                 proven_empty_with_key(),
                 {step::Look{Fact::ownership}, step::WriteRecord{}, step::LuksFormat{}, step::Look{Fact::luks},
                  step::LuksOpen{}, step::Look{Fact::probe}, step::Mkfs{}, step::Look{Fact::probe},
                  step::Mount{kTarget}, step::Look{Fact::filesystem, kTarget}, step::LuksNote{},
                  step::RemoveFormatMarker{}, step::WriteRecord{}, step::CloseImage{}}})},
      {"after a reboot",
       but(mapped(),
           [](Model& model) {
             model.seen.boot_id = "next";
             model.seen.devices.clear();
             model.seen.mounts.clear();
           }),
       Wish(krbd_wish()),
       sequence({{step::DropRecord{}}, permitted(), map_and_name(), checked_and_mounted(), {step::CloseImage{}}})},
      {"a repeated stage", mapped(), Wish(krbd_wish()), {}},
  });
}

TEST_CASE("a kernel client's volume can be healed, unstaged and expanded, but not given up or rekeyed") {
  check({
      {"healed: the kernel serves it", mapped(), Wish(Healed{}), {}},
      {"unstaged, without the cluster",
       mapped(),
       Wish(Unstaged{kPath}),
       {step::Umount{kTarget}, step::WriteRecord{}, step::Look{Fact::unused}, step::UnmapKrbd{},
        step::Look{Fact::stash}, step::DropStash{kPath}, step::DropRecord{}}},
      {"expanded, once the kernel has seen it",
       but(mapped(), [](Model& model) { model.filesystem_bytes = 1 << 29; }),
       Wish(Expanded{kPath, 1 << 30}),
       {step::Look{Fact::filesystem, kTarget}, step::Grow{kTarget}}},
      {"expanded before the kernel has seen it", mapped(), Wish(Expanded{kPath, kTwo}), {}, errc::unavailable},
      {"given up", mapped(), Wish(GivenUp{}), {}, errc::failed_precondition},
      {"rekeyed",
       but(mapped(),
           [](Model& model) {
             model.record->encryption = Encryption{DeviceKms{"default"}};
             model.seen.devices.front().holders.push_back(mapping());
           }),
       Wish(Rekeyed{}),
       {},
       errc::unimplemented},
  });
}

TEST_CASE("the kernel client is chosen if it is asked for and knows every feature of the image", "[failure:109]") {
  const device::Abilities able{0x1bf, false};
  const auto key = cephcsi::KeyType::aes;
  CHECK(*choose_kind(Mounter::nbd, 0, key, Error{errc::failed_precondition, "no module"}) == device::Kind::nbd);
  CHECK(*choose_kind(Mounter::krbd, 5, key, able) == device::Kind::krbd);
  CHECK(*choose_kind(Mounter::krbd_if_able, 69, key, able) == device::Kind::nbd);
  const auto refused = choose_kind(Mounter::krbd, 69 | 1ull << 40, key, able);
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, ContainsSubstring("journaling, bit 40"));
}

TEST_CASE("a key type that the kernel does not know selects the other mounter, but only if trying another is allowed") {
  const auto key = GENERATE(cephcsi::KeyType::unknown, cephcsi::KeyType::aes, cephcsi::KeyType::aes256k);
  const bool known = GENERATE(true, false);
  const device::Abilities able{0x1bf, known};
  const bool other = key == cephcsi::KeyType::aes256k && !known;
  CHECK(*choose_kind(Mounter::krbd_if_able, 5, key, able) == (other ? device::Kind::nbd : device::Kind::krbd));
  // The kernel itself says whether it knows the key.
  CHECK(*choose_kind(Mounter::krbd, 5, key, able) == device::Kind::krbd);
}

TEST_CASE(
    "an unstage of a device that the host's LVM uses is refused with the group and the command, whoever staged it",
    "[failure:244]") {
  const bool by_us = GENERATE(true, false);
  Model model = mapped();
  model.seen.mounts.clear();
  model.seen.devices.front().holders.push_back({"dm-0", "vg--1-root", 1 << 29, 253, 0, device::Maker::lvm});
  if (by_us)
    model.record->stagings.clear();
  else
    model.record.reset();
  Decision last;
  REQUIRE(run(model, Wish(Unstaged{kPath}), &last));
  const auto* refused = std::get_if<Refusal>(&last);
  REQUIRE(refused != nullptr);
  CHECK(refused->error.code == errc::in_use);
  CHECK_THAT(refused->error.text, ContainsSubstring("vgchange -an vg-1") && ContainsSubstring("global_filter"));
}
