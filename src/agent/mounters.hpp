// Chooses the client for a volume that is to be staged, from its attributes, --default-mounter, and mounters.json
// beside config.json. That file is read anew for each stage.
#pragma once

#include <string>

#include "corbd/agent/options.hpp"
#include "corbd/cephcsi/mounters.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/orchestrator/kubernetes.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::agent {

/// Control thread only.
class Mounters {
 public:
  Mounters(const Options& options, BlockingPool& files, const volume::Volumes& volumes,
           orchestrator::Kubernetes& kubernetes)
      : options_(options), files_(files), volumes_(volumes), kubernetes_(kubernetes) {}

  /// A volume that has a client keeps it, so neither a wrong file nor a silent API server refuses its stage. For any
  /// other volume the result is unavailable if the file is wrong, or if a rule names a StorageClass and the API server
  /// does not return the volume's.
  task<result<cephcsi::Mounters>> of(std::string volume_id, cephcsi::Attributes attributes, Until until);

 private:
  bool has_client(const std::string& volume_id) const;

  const Options& options_;
  BlockingPool& files_;
  const volume::Volumes& volumes_;
  orchestrator::Kubernetes& kubernetes_;
};

}  // namespace corbd::agent
