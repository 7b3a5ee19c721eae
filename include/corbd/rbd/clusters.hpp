// Implements the image port: shared librados connections, librbd images, incarnation files.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/image/image.hpp"

namespace corbd::rbd {

/// Version of an incarnation's file. A newer one is refused: nobody would fence its client (docs/compatibility.md).
inline constexpr int kIncarnationVersion = 1;

struct Config {
  std::string
      incarnations_dir;  ///< one file per rados_t: its fsid and addresses, until it is fenced or was shut down cleanly
  std::string boot_id = {};                ///< the running boot
  std::size_t images_per_connection = 32;  ///< a connection with this many is full
  std::size_t max_connections = 2;         ///< limit for one access; when all are full, further images share them
  std::chrono::seconds mon_timeout{10};    ///< for connecting and monitor commands
  bool predecessor_running = false;  ///< the predecessor still serves (image::Clusters::reload_predecessor_clients)
  /// Interval of the checks of each open image, because Ceph announces neither a lost lock nor a pool's changed
  /// setting. Much shorter than longest_absence.
  std::chrono::milliseconds looks_every = std::chrono::minutes(5);
  /// Called if a client that was cut off has not ended shortly before its blocklist entry does. Its operations could
  /// write again after that, over newer data. Null: the process ends.
  std::function<void()> end_process = {};
};

/// Reads the incarnation files. All of them are dead, because the caller holds the state directory's lock, or are the
/// clients of the agent that this one runs beside. `files` is only for them: each cluster has threads of its own for
/// its calls, made with its first call (rbd/blocking_calls.hpp).
std::unique_ptr<image::Clusters> make_clusters(executor control, Clock& clock, BlockingPool& files, Config config);

}  // namespace corbd::rbd
