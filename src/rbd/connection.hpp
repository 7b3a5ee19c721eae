// A connection to a cluster, and the group of those with one access.
#pragma once

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "connect.hpp"
#include "corbd/core/gate.hpp"

namespace corbd::rbd {

struct ClusterThreads;
struct Group;
class OpenImage;
struct LockWatch;

/// An attempt to connect, which several callers may wait for.
struct Attempt {
  Attempt(executor control, Clock& clock) : done(control, clock) {}
  Event done;
  std::optional<Error> failed;
  std::optional<Error> node_fenced;  ///< the connection exists, and only the monitors answer it
};

struct Connection {
  rados_t cluster = nullptr;
  std::string fsid, uuid;
  std::vector<std::string> addresses;
  std::shared_ptr<Group> group;
  ClusterThreads* threads = nullptr;  ///< for its calls
  std::size_t users = 0;              ///< open images and calls
  time_point idle_since{};            ///< while it has no user
  std::uint64_t map_after = 0;        ///< number of the last fencing whose OSD map it has
  bool dropped = false;               ///< takes no new image
  bool retired = false;      ///< takes none either, because another client may do better; ends with its last image
  bool silent = false;       ///< a caller left a call without an answer, and no call has had one since
  bool clean = true;         ///< every image was closed cleanly
  bool keeps_locks = false;  ///< locks stay when it ends
  bool recorded = false;     ///< its file exists or is being written: it may open images for writing
  std::shared_ptr<Attempt> recording;
  std::optional<Error> node_fenced;  ///< the cluster refuses this node: only its monitors answer
  std::atomic<bool> blocklisted{false};
  std::atomic<unsigned> under_way{0};  ///< calls whose answer is told to Connections::note_answer()
  std::set<OpenImage*> images;         ///< open images, which are told when the connection is blocklisted
  std::vector<std::shared_ptr<LockWatch>> lock_watches;  ///< librados calls them until the client has ended
  std::function<void()> on_blocklisted;                  ///< any thread, once

  /// Returns a library's result, and notices -108. Any thread.
  int observe_result(int r) {
    if (r == -ESHUTDOWN && !blocklisted.exchange(true, std::memory_order_relaxed) && on_blocklisted) on_blocklisted();
    return r;
  }
};

/// A call on a connection whose answer is told to Connections::note_answer(). Any thread.
class UnderWay {
 public:
  explicit UnderWay(Connection& on) : on_(on) { ++on_.under_way; }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
  ~UnderWay() { --on_.under_way; }

 private:
  Connection& on_;
};

/// The connections of one cluster and user.
struct Group {
  image::Access access;
  std::vector<std::shared_ptr<Connection>> serving;
  std::shared_ptr<Attempt> connecting, fencing;
  std::optional<std::pair<Error, time_point>> node_fenced;  ///< the error; nobody reconnects to get it before the time
  std::optional<std::string> cannot_fence = {};             ///< by the last connection
  time_point further_from{};  ///< from then on another connection may be made because all are `silent`
  bool outdated = false;      ///< the same user has a newer key or other monitors
};

}  // namespace corbd::rbd
