// `corbd doctor` checks the node. A thin part gathers facts, pure functions judge them, and another part shows and
// packs the findings.
#pragma once

#include <string>

#include "corbd/cephcsi/serving.hpp"

namespace corbd::v1 {
class Program;
}

namespace corbd::doctor {

/// Flags have the names of `corbd run`.
struct Options {
  std::string endpoint, admin_endpoint, kubelet_dir, state_dir, runtime_dir, config_dir;
  std::string kms_config_dir;
  std::string ceph_conf;  ///< names the cluster where there is no config.json; empty: none
  std::string driver;
  bool standalone = false;  ///< no kubelet and no API server are expected
  cephcsi::Mounter default_mounter = cephcsi::Mounter::nbd;
  std::string bundle;           ///< file of the bundle; empty: none
  std::string output = "text";  ///< "text" or "json"
};

/// Prints its findings. `own`: this program. Exit code: 0 ok, 1 warnings, 2 failures.
int diagnose(const Options& options, const v1::Program& own);

}  // namespace corbd::doctor
