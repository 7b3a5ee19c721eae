// Volumes whose files are encrypted.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;
using host::EncryptedFolder;

namespace {

/// Nothing of the volume is on the node; an earlier stage made its folder.
Model with_files() {
  return but(fresh(), [](Model& model) {
    model.kms_id = "default";
    model.encryption_type = "file";
    model.image_has_data = model.image_has_filesystem = true;
    model.folder = EncryptedFolder::locked;
    model.filesystem_bytes = 1 << 30;
  });
}

/// Staged, open and served.
Model open_files() {
  Model model = staged_model();
  model.record->encryption = Encryption{FilesKms{"default"}};
  model.stash.emplace();
  model.folder = EncryptedFolder::unlocked;
  return model;
}

Staged wish_to_read_files() {
  Staged wish = staged_wish();
  wish.capability.read_only = true;
  return wish;
}

const step::Look kLook{Fact::folder, kTarget};
const std::vector<Step> kLocked{step::FscryptLock{kTarget}, step::Umount{kTarget}};

/// From a served device to the mount of the filesystem that it has.
std::vector<Step> found() {
  return sequence({permitted(), connected(), {step::Look{Fact::probe}, step::Fsck{}, step::Mount{kTarget}}});
}
/// From the unlocked folder to the end of the stage.
std::vector<Step> files_filled() {
  return {step::Look{Fact::filesystem, kTarget}, step::Look{Fact::format_marker}, step::WriteRecord{}};
}

}  // namespace

TEST_CASE("a fresh stage of a volume with encrypted files makes the folder once its filesystem is mounted") {
  Model model = fresh();
  model.kms_id = "default";
  model.encryption_type = "file";
  model.filesystem_bytes = 1 << 30;
  const auto steps = run(model, Wish(staged_wish()));
  REQUIRE(steps);
  CHECK(*steps ==
        sequence({permitted(),
                  connected(),
                  {step::Look{Fact::probe}},
                  proven_empty_with_key(),
                  {step::Mkfs{}, step::Look{Fact::probe}, step::Mount{kTarget}, kLook, step::FscryptMake{kTarget},
                   step::Look{Fact::filesystem, kTarget}, step::RemoveFormatMarker{}, step::WriteRecord{}}}));
  CHECK(model.record->encryption == Encryption{FilesKms{"default"}});
  CHECK(!model.record->encrypts_device());
  CHECK_FALSE(model.stash->encrypted);
}

TEST_CASE(
    "a stage of a volume with encrypted files unlocks the folder that is there, and refuses one with unencrypted "
    "files") {
  const auto folder = [](EncryptedFolder is) { return but(with_files(), [is](Model& model) { model.folder = is; }); };
  check({
      {"a locked folder", with_files(), Wish(staged_wish()),
       sequence({found(), {kLook, step::FscryptUnlock{kTarget}}, files_filled()})},
      {"a folder that is unlocked, as by ceph-csi", folder(EncryptedFolder::unlocked), Wish(staged_wish()),
       sequence({found(), {kLook}, files_filled()})},
      {"no folder, from a stage that did not end", folder(EncryptedFolder::none), Wish(staged_wish()),
       sequence({found(), {kLook, step::Look{Fact::first_key}, step::FscryptMake{kTarget}}, files_filled()})},
      {"unencrypted files", folder(EncryptedFolder::plain), Wish(staged_wish()), sequence({found(), {kLook}}),
       errc::failed_precondition},
      {"a repeated stage", open_files(), Wish(staged_wish()), {kLook}},
      {"a repeated stage, after an unstage that did not end",
       but(open_files(), [](Model& model) { model.folder = EncryptedFolder::locked; }),
       Wish(staged_wish()),
       {kLook, step::FscryptUnlock{kTarget}}},
  });
}

TEST_CASE("a read-only stage of a volume with encrypted files makes no folder") {
  Model model = with_files();
  model.folder = EncryptedFolder::none;
  Decision last = Done{};
  CHECK(run(model, Wish(wish_to_read_files()), &last));
  CHECK(failure(last) == errc::failed_precondition);
  CHECK(model.folder == EncryptedFolder::none);
}

TEST_CASE("a volume with encrypted files is published while its folder is unlocked, and refused while it is locked") {
  const Published wish{kPath, "/target", false, staged_wish().capability};
  check({
      {"unlocked", open_files(), Wish(wish), {step::WriteRecord{}, kLook, step::Bind{"/target"}}},
      {"locked",
       but(open_files(), [](Model& model) { model.folder = EncryptedFolder::locked; }),
       Wish(wish),
       {step::WriteRecord{}, kLook},
       errc::failed_precondition},
  });
}

TEST_CASE("the last unstage of a volume with encrypted files locks its folder first, and any other one does not") {
  Model model = open_files();
  auto steps = run(model, Wish(Unstaged{kPath}));
  REQUIRE(steps);
  REQUIRE(steps->size() > 2);
  CHECK(std::vector<Step>(steps->begin(), steps->begin() + 2) == kLocked);
  CHECK(model.folder == EncryptedFolder::locked);
  model = open_files();
  model.record->stagings.push_back({"/staging-2", staged_wish().capability, true});
  model.seen.mounts.push_back(mount_of(model.seen.devices.front(), "/staging-2/" + kId));
  const auto first = model.decide(Wish(Unstaged{kPath}));
  REQUIRE(std::holds_alternative<Step>(first));
  CHECK(std::get<Step>(first) == Step(step::Umount{kTarget, false}));
}

TEST_CASE("a volume with encrypted files is healed without its passphrase, and its key is not rotated") {
  check({
      {"healed",
       but(open_files(),
           [](Model& model) {
             model.seen.link = Observation::Link::none;
             model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
             model.ownership.lock = Lock::our_dead;
           }),
       Wish(Healed{}),
       {step::Fence{}, step::OpenImage{}, step::Look{Fact::ownership}, step::WriteRecord{}, step::Lock{},
        step::StartSession{}, step::KernelReconfigure{}, step::WriteRecord{}}},
      {"key rotation", open_files(), Wish(Rekeyed{}), {}, errc::unimplemented},
  });
}
