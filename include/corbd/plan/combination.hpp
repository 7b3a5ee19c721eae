// Combinations that corbd refuses on purpose: one row for each combination of request and image. The code that refuses
// it takes the error from its row. docs/serving.md prints the rows, and `corbd doctor` checks staged volumes against
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"
#include "corbd/device/values.hpp"
#include "corbd/plan/record.hpp"

namespace corbd::plan {

/// Properties that decide whether a volume is served, as far as they are known before anything is done.
struct Combination {
  enum class Encryption { none, device, with_integrity, files };
  /// Content of the image: nothing, what the request wants, a filesystem of another type, or unencrypted data although
  /// encryption is wanted.
  enum class Contents { nothing, wanted, other_filesystem, unencrypted };

  Mounter mounter = Mounter::nbd;
  Encryption encryption = Encryption::none;
  Capability capability = {};
  std::uint64_t features = 0;  ///< the image's features
  device::Abilities kernel = {};
  Contents contents = Contents::nothing;
  std::string filesystem = {};  ///< type on the image, inside its encryption; empty: none
  bool left_unserved = false;   ///< its device had lost its server before this agent knew the volume
};

/// Whether the kernel's client serves it.
bool is_for_kernel(const Combination& of);
/// Returns a staged volume's combination by its record.
Combination combination_of(const Record& record);

struct NotServed {
  enum class Moment { stage, second_pod, expansion, rotation, reclaim, giving_up };
  Moment moment;
  std::string_view combination;  ///< for people
  errc code;
  std::string_view why;  ///< text of the error, after the name of the volume or image
  bool (*is)(const Combination& of);
};
std::string_view name(NotServed::Moment moment);

/// Makes "volume 0001-... is not encrypted: it has no key", followed by `rest`.
Error error_of(const NotServed& row, const std::string& about, const std::string& rest = "");
/// Returns all rows. find_not_served() takes the first one that matches.
std::span<const NotServed* const> all_not_served();
/// Returns the first row that matches the combination at that moment; nullptr: it is served.
const NotServed* find_not_served(NotServed::Moment moment, const Combination& of);

namespace not_served {
extern const NotServed kFilesystemForMany, kFilesOnOther, kFeaturesOfKernel, kUnencrypted, kHeaderForReader,
    kHeaderForMany, kIntegrityForMany, kNothingToRead, kOtherFilesystem, kFilesystemWithoutFolders, kFolderForReader,
    kUnprovenWithoutLock, kMadeWithoutFolders;
extern const NotServed kSecondPod;
extern const NotServed kIntegrityGrows;
extern const NotServed kFilesRotated, kNoKey, kReaderRotates, kManyRotate, kKernelRotates;
extern const NotServed kBlockReclaims, kReaderReclaims, kIntegrityReclaims;
extern const NotServed kKernelGivesUp;
}  // namespace not_served

}  // namespace corbd::plan
