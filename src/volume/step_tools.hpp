// What the classes of steps share: the ports, the time that a step may take, and where a volume's device is.
#pragma once

#include "volume.hpp"

namespace corbd::volume {

/// Image metadata that exists from before mkfs until after the first mount. Only a record with the same marker allows
/// repeating the format.
inline constexpr const char* kFormatMarker = "corbd/format";

/// What the volume brings along to its KMS.
kms::KeyRequest key_request(const Volume& volume, const std::string& kms_id, const Wish& wish);
/// The error for an encrypted volume whose KMS needs a passphrase that its secret does not have.
Error lacks_passphrase(const std::string& volume_id);

/// The base of each class of steps. None of them keeps a state of a volume.
class StepTools {
 public:
  StepTools(Clock& clock, const Ports& ports, const Config& config) : clock_(clock), ports_(ports), config_(config) {}

 protected:
  result<image::Access> access(const Volume& volume) const;
  /// The same. Where it may be one of several clusters, the volume's own is looked for first.
  task<result<image::Access>> find_access(const Volume& volume) const;
  /// Whose helpers work on the volume: its cluster's, so that a hang takes no helper from other clusters.
  HelperOwner owner(const Volume& volume) const;
  result<device::Seen> device_of(const Volume& volume) const;
  result<std::uint32_t> device_index(const Volume& volume) const;
  result<std::string> device_path(const Volume& volume) const;
  /// What holds the filesystem: the device, or the mapping above it.
  result<std::string> data_path(const Volume& volume) const;
  /// Config::step_limit from now.
  Until deadline() const;
  /// Config::long_step_limit from now.
  Until long_deadline() const;
  /// For calls that use the device: they also end with its link.
  Until while_served(Volume& volume, Until until) const;
  /// Of the open image. What the cluster does not tell soon, or not to this user, counts as none.
  task<> look_at_io_limits(Volume& volume);

  Clock& clock_;
  const Ports& ports_;
  const Config& config_;
};

}  // namespace corbd::volume
