// What other rooms ask of the node's volumes.
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

// This room carries out what `plan` decides.
using namespace plan;

/// want() asks for a wish and waits for its end. If the wait ends first, the operation goes on. An equal wish joins it,
/// a different one waits for the volume's lock.
class Volumes {
 public:
  virtual ~Volumes() = default;
  virtual task<result<>> want(std::string volume_id, Wish wish, Until until) = 0;
  /// How full the volume's filesystem is: its last answer if it does not answer now. For a raw block volume, only the
  /// size. `path`: where the volume is staged or published; not_found for any other. unavailable: there is no answer
  /// yet. Asks the cluster nothing.
  virtual task<result<host::Usage>> usage(std::string volume_id, std::string path, Until until) = 0;
  /// Every volume that has a record.
  virtual std::vector<Status> status() const = 0;
  virtual std::optional<Status> status(const std::string& volume_id) const = 0;
  /// Devices that the agent cannot serve until a stage brings what it lacks, the record or the key.
  virtual std::vector<Unclaimed> unclaimed() const { return {}; }
  /// The same for the kernel client, which serves its devices without us. They carry no volume ID: it is the end of
  /// their staging path.
  virtual std::vector<Unclaimed> left_to_kernel() const { return {}; }
};

}  // namespace corbd::volume
