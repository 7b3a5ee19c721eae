// Shared tools of the step classes: the ports, the time limits of a step, and the path of a volume's device.
#pragma once

#include "volume.hpp"

namespace corbd::volume {

/// Image metadata that exist from before mkfs until after the first mount. Only a record with the same marker allows
/// repeating the format.
inline constexpr const char* kFormatMarker = "corbd/format";

/// Makes the volume's request to its KMS.
kms::KeyRequest key_request(const Volume& volume, const std::string& kms_id, const Wish& wish);
/// Makes the error for an encrypted volume whose KMS needs a passphrase that its secret does not have.
Error lacks_passphrase(const std::string& volume_id);

/// Base of each step class. None of them keeps a state of a volume.
class StepTools {
 public:
  StepTools(Clock& clock, const Ports& ports, const Config& config) : clock_(clock), ports_(ports), config_(config) {}

 protected:
  result<image::Access> access(const Volume& volume) const;
  /// Does the same. If the name may be one of several clusters, it first identifies the volume's own.
  task<result<image::Access>> find_access(const Volume& volume) const;
  /// Returns the owner of helpers that work on the volume: its cluster, so that a hang takes no helper from other
  /// clusters.
  HelperOwner owner(const Volume& volume) const;
  result<device::Seen> device_of(const Volume& volume) const;
  result<std::uint32_t> device_index(const Volume& volume) const;
  result<std::string> device_path(const Volume& volume) const;
  /// Returns the device that holds the filesystem: the volume's own, or the mapping above it.
  result<std::string> data_path(const Volume& volume) const;
  /// Returns Config::step_limit from now.
  Until deadline() const;
  /// Returns a moment from now, for what need not be waited for.
  Until soon() const;
  /// Returns Config::long_step_limit from now.
  Until long_deadline() const;
  /// Limits calls that use the device: they also end with its link.
  Until while_served(Volume& volume, Until until) const;
  /// Reads the limits of the open image. If the cluster does not answer soon, or not to this user, there are none.
  task<> look_at_io_limits(Volume& volume);

  Clock& clock_;
  const Ports& ports_;
  const Config& config_;
};

}  // namespace corbd::volume
