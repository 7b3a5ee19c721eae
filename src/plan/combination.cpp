#include "corbd/plan/combination.hpp"

#include <algorithm>
#include <array>

#include "corbd/plan/planner.hpp"

namespace corbd::plan {
namespace {

using Moment = NotServed::Moment;
using Encrypted = Combination::Encryption;
using Contents = Combination::Contents;

bool reads(const Combination& of) { return wants_read_only(of.capability); }
bool has_header(const Combination& of) {
  return of.encryption == Encrypted::device || of.encryption == Encrypted::with_integrity;
}
bool is_empty(const Combination& of) { return of.contents == Contents::nothing; }
bool encrypts(const Combination& of, const std::string& type) {
  return of.encryption != Encrypted::files || host::encrypts_files(type);
}

}  // namespace

namespace not_served {

// --- a stage

constexpr NotServed kFilesystemForMany{
    .moment = Moment::stage,
    .combination = "ReadWriteMany with a filesystem",
    .code = errc::invalid_argument,
    .why = "RWX access mode request is only valid for volumes with access type `block`",
    .is = [](const Combination& of) { return of.capability.shared && !of.capability.block; }};

constexpr NotServed kFilesOnOther{
    .moment = Moment::stage,
    .combination = "encryptionType `file` with raw block, or with a filesystem that cannot encrypt a folder",
    .code = errc::invalid_argument,
    .why =
        "has encryptionType 'file', which needs a filesystem that encrypts folders: use ext4, or encryptionType "
        "'block'",
    .is = [](const Combination& of) {
      return of.encryption == Encrypted::files &&
             (of.capability.block || !encrypts(of, with_fstype(of.capability).fstype));
    }};

constexpr NotServed kFeaturesOfKernel{
    .moment = Moment::stage,
    .combination =
        "`mounter: rbd`, and an image with a feature that this node's kernel does not know, such as journaling",
    .code = errc::failed_precondition,
    .why = "the kernel's rbd does not know: use mounter rbd-nbd, or allow it with tryOtherMounters",
    .is = [](const Combination& of) {
      return !choose_kind(of.mounter, of.features, cephcsi::KeyType::aes, result<device::Abilities>(of.kernel));
    }};

constexpr NotServed kUnprovenWithoutLock{
    .moment = Moment::stage,
    .combination =
        "an image without exclusive-lock whose device lost its server (a dead rbd-nbd, a lost state directory) before "
        "corbd knew the volume",
    .code = errc::unproven,
    .why = "it has no exclusive-lock feature, so nothing shows who wrote last",
    .is = [](const Combination& of) {
      return of.left_unserved && (of.features & image::kExclusiveLock) == 0 && !of.capability.read_only &&
             !of.capability.shared && !is_for_kernel(of);
    }};

constexpr NotServed kHeaderForReader{
    .moment = Moment::stage,
    .combination = "a read-only volume that is to be encrypted, on an empty image",
    .code = errc::failed_precondition,
    .why = "is not encrypted yet and is wanted read-only: stage it writable once, which encrypts it",
    .is = [](const Combination& of) { return has_header(of) && is_empty(of) && reads(of); }};

constexpr NotServed kHeaderForMany{
    .moment = Moment::stage,
    .combination = "ReadWriteMany with encryption, on an empty image",
    .code = errc::failed_precondition,
    .why = "is not encrypted yet, and another node may use it: stage it once as ReadWriteOnce, which encrypts it",
    .is = [](const Combination& of) { return has_header(of) && is_empty(of) && of.capability.shared; }};

constexpr NotServed kUnencrypted{
    .moment = Moment::stage,
    .combination = "a volume that is to be encrypted, on an image that holds unencrypted data",
    .code = errc::failed_precondition,
    .why = "is to be encrypted, but holds unencrypted data",
    .is = [](const Combination& of) { return has_header(of) && of.contents == Contents::unencrypted; }};

constexpr NotServed kIntegrityForMany{
    .moment = Moment::stage,
    .combination = "integrityMode with ReadWriteMany",
    .code = errc::failed_precondition,
    .why = "has integrityMode, which one node at a time can write: use ReadWriteOnce",
    .is = [](const Combination& of) { return of.encryption == Encrypted::with_integrity && of.capability.shared; }};

constexpr NotServed kNothingToRead{
    .moment = Moment::stage,
    .combination = "a read-only filesystem, on an empty image",
    .code = errc::failed_precondition,
    .why = "holds no filesystem and is wanted read-only: stage it writable once, which makes one",
    .is = [](const Combination& of) { return !of.capability.block && is_empty(of) && reads(of); }};

constexpr NotServed kOtherFilesystem{
    .moment = Moment::stage,
    .combination = "an image that holds another filesystem than the `fsType` that is named",
    .code = errc::failed_precondition,
    .why = "ask for the filesystem that is there",
    .is = [](const Combination& of) {
      const auto& wanted = of.capability.fstype;
      return !of.capability.block && !wanted.empty() && !of.filesystem.empty() && wanted != of.filesystem;
    }};

constexpr NotServed kFilesystemWithoutFolders{
    .moment = Moment::stage,
    .combination = "encryptionType `file` without `fsType`, and an image whose filesystem cannot encrypt a folder",
    .code = errc::failed_precondition,
    .why = "which cannot encrypt a folder: use ext4, or encryptionType 'block'",
    .is = [](const Combination& of) { return !of.filesystem.empty() && !encrypts(of, of.filesystem); }};

constexpr NotServed kFolderForReader{
    .moment = Moment::stage,
    .combination = "encryptionType `file`, read-only, on a filesystem that has no encrypted folder yet",
    .code = errc::failed_precondition,
    .why = "has no encrypted folder yet and is wanted read-only: stage it writable once, which makes one",
    .is = [](const Combination& of) {
      return of.encryption == Encrypted::files && of.contents == Contents::unencrypted && reads(of);
    }};

/// src/host/fscrypt.cpp finds this when it makes the folder.
constexpr NotServed kMadeWithoutFolders{
    .moment = Moment::stage,
    .combination = "encryptionType `file`, and an ext4 that was made without `-O encrypt`",
    .code = errc::failed_precondition,
    .why = "cannot be encrypted: its filesystem was made without the option -O encrypt",
    .is = [](const Combination& of) {
      return of.encryption == Encrypted::files && of.contents == Contents::unencrypted;
    }};

// --- a staged volume

constexpr NotServed kSecondPod{.moment = Moment::second_pod,
                               .combination = "a second pod of a ReadWriteOncePod volume",
                               .code = errc::failed_precondition,
                               .why = "is for one pod only",
                               .is = [](const Combination& of) { return of.capability.single_writer; }};

constexpr NotServed kIntegrityGrows{
    .moment = Moment::expansion,
    .combination = "integrityMode",
    .code = errc::failed_precondition,
    .why = "has integrityMode, and such a volume keeps the size of its format: copy its data to a larger one",
    .is = [](const Combination& of) { return of.encryption == Encrypted::with_integrity; }};

constexpr NotServed kFilesRotated{.moment = Moment::rotation,
                                  .combination = "encryptionType `file`",
                                  .code = errc::unimplemented,
                                  .why = "are encrypted (fscrypt), and their key is not rotated",
                                  .is = [](const Combination& of) { return of.encryption == Encrypted::files; }};

constexpr NotServed kNoKey{.moment = Moment::rotation,
                           .combination = "a volume that is not encrypted",
                           .code = errc::failed_precondition,
                           .why = "is not encrypted: it has no key",
                           .is = [](const Combination& of) { return of.encryption == Encrypted::none; }};

constexpr NotServed kReaderRotates{
    .moment = Moment::rotation,
    .combination = "a volume that is read-only",
    .code = errc::failed_precondition,
    .why = "is staged read-only, so its key is not rotated: stage it as ReadWriteOnce first",
    .is = [](const Combination& of) { return reads(of); }};

constexpr NotServed kManyRotate{
    .moment = Moment::rotation,
    .combination = "ReadWriteMany",
    .code = errc::failed_precondition,
    .why = "is written by many nodes, so its key is not rotated: stage it as ReadWriteOnce first",
    .is = [](const Combination& of) { return of.capability.shared; }};

constexpr NotServed kKernelRotates{
    .moment = Moment::rotation,
    .combination = "a volume that the kernel client serves",
    .code = errc::unimplemented,
    .why = "is served by the kernel's client: its key is rotated only with mounter rbd-nbd",
    .is = is_for_kernel};

constexpr NotServed kBlockReclaims{.moment = Moment::reclaim,
                                   .combination = "raw block",
                                   .code = errc::unimplemented,
                                   .why = "is a raw block device: only its user knows which blocks are free",
                                   .is = [](const Combination& of) { return of.capability.block; }};

constexpr NotServed kReaderReclaims{.moment = Moment::reclaim,
                                    .combination = "a filesystem that is read-only",
                                    .code = errc::failed_precondition,
                                    .why = "is read-only: it cannot be trimmed",
                                    .is = [](const Combination& of) { return reads(of); }};

constexpr NotServed kIntegrityReclaims{
    .moment = Moment::reclaim,
    .combination = "integrityMode",
    .code = errc::unimplemented,
    .why = "has integrityMode, which cannot discard",
    .is = [](const Combination& of) { return of.encryption == Encrypted::with_integrity; }};

constexpr NotServed kKernelGivesUp{.moment = Moment::giving_up,
                                   .combination = "a volume that the kernel client serves",
                                   .code = errc::failed_precondition,
                                   .why = "it cannot be given up here; see `rbd unmap -o force`",
                                   .is = is_for_kernel};

}  // namespace not_served

bool is_for_kernel(const Combination& of) {
  const auto kind = choose_kind(of.mounter, of.features, cephcsi::KeyType::aes, result<device::Abilities>(of.kernel));
  return kind && !traits(*kind).served;
}

Combination combination_of(const Record& record) {
  Combination of;
  of.mounter = traits(record.device.kind).served ? Mounter::nbd : Mounter::krbd;
  if (record.encrypts_files()) of.encryption = Encrypted::files;
  if (record.encrypts_device()) of.encryption = Encrypted::device;
  if (!record.stagings.empty()) of.capability = record.stagings.front().capability;
  of.capability.block = record.use.block;
  of.capability.read_only = record.use.read_only;
  of.capability.shared = record.use.shared;
  of.contents = Contents::wanted;
  return of;
}

std::string_view name(NotServed::Moment moment) {
  switch (moment) {
    case Moment::stage:
      return "stage";
    case Moment::second_pod:
      return "publish";
    case Moment::expansion:
      return "expansion";
    case Moment::rotation:
      return "rotation of the key";
    case Moment::reclaim:
      return "reclaim (fstrim)";
    case Moment::giving_up:
      return "`corbd fail`";
  }
  return "";
}

Error error_of(const NotServed& row, const std::string& about, const std::string& rest) {
  return {row.code, about + " " + std::string(row.why) + rest};
}

std::span<const NotServed* const> all_not_served() {
  using namespace not_served;
  static constexpr std::array all{
      &kFilesystemForMany,
      &kFilesOnOther,
      &kFeaturesOfKernel,
      &kUnprovenWithoutLock,
      &kHeaderForReader,
      &kHeaderForMany,
      &kUnencrypted,
      &kIntegrityForMany,
      &kNothingToRead,
      &kOtherFilesystem,
      &kFilesystemWithoutFolders,
      &kFolderForReader,
      &kMadeWithoutFolders,
      &kSecondPod,
      &kIntegrityGrows,
      &kFilesRotated,
      &kNoKey,
      &kReaderRotates,
      &kManyRotate,
      &kKernelRotates,
      &kBlockReclaims,
      &kReaderReclaims,
      &kIntegrityReclaims,
      &kKernelGivesUp,
  };
  return all;
}

const NotServed* find_not_served(NotServed::Moment moment, const Combination& of) {
  const auto all = all_not_served();
  const auto met =
      std::ranges::find_if(all, [&](const NotServed* row) { return row->moment == moment && row->is(of); });
  return met == all.end() ? nullptr : *met;
}

}  // namespace corbd::plan
