#include "fscrypt.hpp"

#include "bring_up.hpp"
#include "corbd/cephcsi/parameters.hpp"
#include "corbd/plan/combination.hpp"
#include "filesystem.hpp"
#include "volume_key.hpp"

namespace corbd::plan {
namespace {

/// Files beside the folder stay as they are: the folder is new, and no pod gets them.
Decision make_folder(const Situation& view, const std::string& target, const Capability& capability) {
  if (writes_nothing(view, capability)) return refuse(error_of(not_served::kFolderForReader, image_of(view)));
  return with_first_key(view, step::FscryptMake{target});
}

}  // namespace

bool encrypts_files(const image::Resolved& image) {
  return !image.kms_id.empty() && image.encryption_type == cephcsi::kFileEncryption;
}

std::optional<Decision> open_folder(const Situation& view, const std::string& target, const Capability& capability) {
  if (!view.record->encrypts_files()) return std::nullopt;
  if (!view.seen.facts.folder) return step::Look{Fact::folder, target};
  switch (*view.seen.facts.folder) {
    case host::EncryptedFolder::none:
      return make_folder(view, target, capability);
    case host::EncryptedFolder::plain:
      return refuse(errc::failed_precondition, image_of(view) + " is to have encrypted files, but its folder " +
                                                   host::kEncryptedFolder +
                                                   " holds unencrypted ones: move them elsewhere, then stage it again");
    case host::EncryptedFolder::locked:
      return step::FscryptUnlock{target};
    case host::EncryptedFolder::unlocked:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Decision> refuse_locked(const Situation& view, const std::string& target) {
  if (!view.record->encrypts_files()) return std::nullopt;
  if (!view.seen.facts.folder) return step::Look{Fact::folder, target};
  if (*view.seen.facts.folder == host::EncryptedFolder::unlocked) return std::nullopt;
  return refuse(errc::failed_precondition,
                "the encrypted folder of volume " + view.id + " is locked, and its stage unlocks it: " + kStageAgain);
}

std::optional<Decision> lock_folder(const Situation& view, const std::string& target) {
  if (!view.record->encrypts_files() || view.seen.facts.folder_locked || view.seen.facts.disconnected)
    return std::nullopt;
  if (auto step = bring_up(view)) return step;
  return step::FscryptLock{target};
}

}  // namespace corbd::plan
