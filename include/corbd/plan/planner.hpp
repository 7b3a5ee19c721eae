// The one function that decides. Staging, unstaging, healing and recovery after a crash in the middle of any of them
// are the same plan with another wish. Every step is idempotent and ends in an observable fact.
//
// I1 a step that uses a device needs a live link, otherwise Wait. I2 an absent fact is unknown: Look first. I4
// KernelConnect only while no device carries our identifier; two that do are a conflict. I7 total: Done is a fixed
// point, and from any reachable state without faults Done or Refusal comes within 40 steps (property test).
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "corbd/cephcsi/key.hpp"
#include "corbd/plan/observation.hpp"
#include "corbd/plan/record.hpp"
#include "corbd/plan/step.hpp"
#include "corbd/plan/wish.hpp"

namespace corbd::plan {

struct Done {};
struct Wait {
  std::string why;
};
/// The wish ends here, with that error.
struct Refusal {
  Error error;
  /// Close an image that was opened only to look: a watch of ours would keep out the node that may have the image.
  bool leaves = false;
  bool lacks_key = false;  ///< the volume's Secret may have the user and key
};
using Decision = std::variant<Step, Done, Wait, Refusal>;

/// The operator's decisions for the whole agent.
struct Policy {
  std::chrono::seconds tombstone_after{60};  ///< how long a lost volume waits before its device answers EIO
  std::string driver;
  std::string node;      ///< the orchestrator's name for it
  bool fencing = false;  ///< the image's metadata get the address of this node's client
  /// Allows taking images from clients whose node is out of service, or gone.
  bool fence_out_of_service = false;
};

Decision decide(const std::string& volume_id, const std::optional<Record>& record, const Wish& wish,
                const Observation& seen, const Policy& policy);

/// Chooses the client of a new volume; failed_precondition names the features that the kernel does not know. If no
/// other client is allowed, a key of a type that the kernel may not know is left to the kernel, which reports it.
result<device::Kind> choose_kind(Mounter wanted, std::uint64_t image_features, cephcsi::KeyType key,
                                 const result<device::Abilities>& kernel_client);

/// Returns the mount of a staging path: <path>/<volume id>.
std::string staging_target(const std::string& volume_id, const std::string& staging_path);

}  // namespace corbd::plan
