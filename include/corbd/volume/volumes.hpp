// What the rooms above ask of the node's volumes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/host/values.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/status.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::volume {

// This room carries out what that one decides.
using namespace plan;

/// Asks for a wish and waits for its end. The operation goes on when the wait ends first; the same wish asked again
/// joins it. A different one waits for the volume's lock.
class Volumes {
 public:
  virtual ~Volumes() = default;
  virtual task<result<>> want(std::string volume_id, Wish wish, Until until) = 0;
  /// What its filesystem holds, of a moment ago if it does not answer now; of a raw block volume only its size. `path`:
  /// where it is staged or published; not_found for another. unavailable when there is no answer and none before. Asks
  /// the cluster nothing.
  virtual task<result<host::Usage>> usage(std::string volume_id, std::string path, Until until) = 0;
  /// Every volume that has a record.
  virtual std::vector<Status> status() const = 0;
  virtual std::optional<Status> status(const std::string& volume_id) const = 0;
  /// Devices that only a stage, with what it brings, can make this agent's or serve again.
  virtual std::vector<Unclaimed> unclaimed() const { return {}; }
  /// The same of the kernel's client, which serves them whatever we do. They carry no identifier: a path where they are
  /// staged ends in the volume's.
  virtual std::vector<Unclaimed> left_to_kernel() const { return {}; }
};

}  // namespace corbd::volume
