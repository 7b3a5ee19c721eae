// What other rooms ask of the node's volumes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/host/values.hpp"
#include "corbd/plan/holder.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/status.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::volume {

// This room carries out what `plan` decides.
using namespace plan;

/// An image that somebody asks about: that of a volume with a record here, or one by its name and a Ceph user.
struct ImageAt {
  std::string volume_id;
  std::string cluster_id = {};  ///< in config.json; with `name`, `user` and `key`, if there is no volume ID
  image::Name name = {};
  std::string user = {};
  Secret key = {};
  bool also_ready = false;  ///< also a client whose node is ready may be cut off
  bool also_dirty = false;  ///< also one whose persistent cache may have the image's newest writes
};

/// Who has an image, besides this node.
struct Holding {
  image::Key key;
  bool exclusive_lock = false;
  std::vector<plan::Holder> holders;
  bool dirty_cache = false;  ///< one of them has writes in its persistent cache that are not in the cluster
};

/// Who has images open, in the pools that this node's volumes of a cluster use.
struct Users {
  std::vector<image::ImageUser> users;
  std::vector<std::string> not_looked;  ///< why a pool could not be looked at
};

/// What there is to see of the node, from one look at its devices and mounts: that look takes longer the more there
/// are.
struct Overview {
  std::vector<Status> volumes;            ///< as status()
  std::vector<Unclaimed> unclaimed;       ///< as unclaimed()
  std::vector<Unclaimed> left_to_kernel;  ///< as left_to_kernel()
};

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
  /// Asks the cluster. `take`: cuts every one of them off from it, by its very address, before it answers; then the
  /// image can be staged here. failed_precondition: this node serves the image, or nobody has it.
  virtual task<result<Holding>> holders(ImageAt, bool /*take*/, Until) {
    co_return Error{errc::unimplemented, "holders"};
  }
  virtual task<Users> users(std::string /*cluster_id*/, Until) { co_return Users{}; }
  /// Every volume that has a record.
  virtual std::vector<Status> status() const = 0;
  virtual std::optional<Status> status(const std::string& volume_id) const = 0;
  /// Devices that the agent cannot serve until a stage brings what it lacks, the record or the key.
  virtual std::vector<Unclaimed> unclaimed() const { return {}; }
  /// The same for the kernel client, which serves its devices without us. They carry no volume ID: it is the end of
  /// their staging path.
  virtual std::vector<Unclaimed> left_to_kernel() const { return {}; }
  /// All three, for whoever needs more than one.
  virtual Overview overview() const { return {status(), unclaimed(), left_to_kernel()}; }
};

}  // namespace corbd::volume
