// Real images of a cluster on unix sockets, without a kernel: for any NBD client.
#pragma once

#include <string>
#include <vector>

namespace corbd::bench {

/// Serves each image of the pool on FOLDER/<image>.sock, as the agent serves a device of it, until SIGTERM. Prints a
/// line once all are served. `io_threads`: as `corbd run --io-threads`. CORBD_LAB_MON, _USER, _KEY and _POOL name
/// cluster and pool (scripts/lab/ceph env DIR).
int serve_images(const std::string& folder, const std::vector<std::string>& images, unsigned io_threads);

}  // namespace corbd::bench
