// Who serves a volume that is to be staged: its attributes, --default-mounter, and mounters.json beside config.json,
// which is read anew for each stage.
#pragma once

#include <string>

#include "corbd/cephcsi/mounters.hpp"
#include "corbd/cli/options.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/heal/kubernetes.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd {

/// Control thread only.
class Mounters {
 public:
  Mounters(const cli::Run& options, BlockingPool& files, const volume::Volumes& volumes, heal::Kubernetes& kubernetes)
      : options_(options), files_(files), volumes_(volumes), kubernetes_(kubernetes) {}

  /// A volume that has a record keeps its client, so nothing is read and nobody is asked. unavailable: a rule names a
  /// StorageClass, and the API server does not tell the volume's.
  task<result<cephcsi::Mounters>> of(std::string volume_id, cephcsi::Attributes attributes, Until until);

 private:
  const cli::Run& options_;
  BlockingPool& files_;
  const volume::Volumes& volumes_;
  heal::Kubernetes& kubernetes_;
};

}  // namespace corbd
