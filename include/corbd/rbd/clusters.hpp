// The rbd room's real side of the image port: shared librados connections, librbd images, incarnation files.
#pragma once

#include <memory>
#include <string>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/image/image.hpp"

namespace corbd::rbd {

struct Config {
  std::string
      incarnations_dir;      ///< one file per rados_t: its fsid and addresses, until it is fenced or was shut down well
  std::string boot_id = {};  ///< the running boot
  std::size_t images_per_connection = 32;
  std::chrono::seconds mon_timeout{10};  ///< connecting and monitor commands
};

/// Reads the incarnation files: all of them are dead, because the caller holds the state directory's lock. files: for
/// those only; the calls of each cluster have twelve threads of its own, made with its first.
std::unique_ptr<image::Clusters> make_clusters(executor control, Clock& clock, BlockingPool& files, Config config);

}  // namespace corbd::rbd
