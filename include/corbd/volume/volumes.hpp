// The node's volumes, for other rooms.
#pragma once

#include <map>
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

// This room carries out the decisions of `plan`.
using namespace plan;

/// An image in a request: that of a volume with a record here, or one by its name and a Ceph user.
struct ImageAt {
  std::string volume_id;
  std::string cluster_id = {};  ///< as in config.json; with `name`, `user` and `key`, if there is no volume ID
  image::Name name = {};
  std::string user = {};
  Secret key = {};
  bool also_ready = false;  ///< allows cutting off a client whose node is ready
  bool also_dirty = false;  ///< and one whose persistent cache may have the image's newest writes
};

/// The clients that have an image, besides this node.
struct Holding {
  image::Key key;
  bool exclusive_lock = false;
  std::vector<plan::Holder> holders;
  bool dirty_cache = false;  ///< one of them has writes in its persistent cache that are not in the cluster
};

/// Clients that have images open, in the pools that this node's volumes of a cluster use.
struct Users {
  std::vector<image::ImageUser> users;
  std::vector<std::string> not_looked;  ///< reasons why pools could not be examined
};

/// A view of the node from one pass over its devices and mounts. That pass takes longer the more there are.
struct Overview {
  std::vector<Status> volumes;            ///< see status()
  std::vector<Unclaimed> unclaimed;       ///< see unclaimed()
  std::vector<Unclaimed> left_to_kernel;  ///< see left_to_kernel()
  /// Ceph users of all devices of the kernel's client, by path ("/dev/rbd0"); "": the kernel does not tell.
  std::map<std::string, std::string> kernel_users = {};
  std::vector<std::string> not_read = {};  ///< reasons why devices may be missing here
};

/// A check of a filesystem that an operator asks for. Its next stage carries it out, before the mount.
struct ManualCheck {
  enum class State { waits, works, done };
  State state = State::waits;
  bool repair = false;
  duration lasts{};                                                    ///< since when it is in this state
  std::string device;                                                  ///< unless it waits
  result<host::Inspection> found = Error{errc::internal, "not done"};  ///< done
};

/// The node's volumes. want() makes a wish and waits for its end. If the wait ends first, the operation goes on. An
/// equal wish joins it, a different one waits for the volume's lock.
class Volumes {
 public:
  virtual ~Volumes() = default;
  virtual task<result<>> want(std::string volume_id, Wish wish, Until until) = 0;
  /// Returns how full the volume's filesystem is: its last answer if it does not answer now. For a raw block volume,
  /// the size; and once it was counted what its image uses, which the call asks for and does not wait for. `path`:
  /// where the volume is staged or published; not_found for any other. unavailable: there is no answer yet.
  virtual task<result<host::Usage>> usage(std::string volume_id, std::string path, Until until) = 0;
  /// Begins to count what the images of raw block volumes use, where the last count is a minute old: Status::used.
  virtual void count_used() {}
  /// Asks for a check at the next stage, or tells how far it is. A check that has not begun is forgotten unless
  /// somebody asks again with the same `token` within some seconds. in_use: the volume is mounted; the error says
  /// where.
  virtual result<ManualCheck> check_by_hand(const std::string& /*volume_id*/, const std::string& /*token*/,
                                            bool /*repair*/) {
    return Error{errc::unimplemented, "checks"};
  }
  /// Asks the cluster who has the image.
  virtual task<result<Holding>> holders(ImageAt, Until) { co_return Error{errc::unimplemented, "holders"}; }
  /// Finds the clients that have the image, and blocklists each of them by its address. Then the image can be staged
  /// here. failed_precondition: this node serves the image, nobody has it, or a holder is not to be cut off.
  virtual task<result<Holding>> take_image(ImageAt, Until) { co_return Error{errc::unimplemented, "take_image"}; }
  virtual task<Users> users(std::string /*cluster_id*/, Until) { co_return Users{}; }
  /// Returns every volume that has a record.
  virtual std::vector<Status> status() const = 0;
  virtual std::optional<Status> status(const std::string& volume_id) const = 0;
  /// Returns devices that the agent cannot serve until a stage brings the missing record or key.
  virtual std::vector<Unclaimed> unclaimed() const { return {}; }
  /// Does the same for the kernel client, which serves its devices without us. They carry no volume ID: it is the end
  /// of their staging path.
  virtual std::vector<Unclaimed> left_to_kernel() const { return {}; }
  /// Returns all three, for callers that need more than one.
  virtual Overview overview() const { return {status(), unclaimed(), left_to_kernel()}; }
};

}  // namespace corbd::volume
