#include "config.hpp"

#include "version.hpp"

namespace corbd {

rbd::Config cluster_config(const cli::Run& options, const std::string& boot_id) {
  rbd::Config config;
  config.boot_id = boot_id;
  config.incarnations_dir = options.state_dir + "/incarnations";
  return config;
}

volume::Config shell_config(const cli::Run& options, const std::string& boot_id) {
  volume::Config config;
  config.boot_id = boot_id;
  config.policy.driver = options.drivername;
  config.policy.node = options.nodeid;
  config.policy.fencing = options.fencing;
  config.policy.fence_out_of_service = options.fence_out_of_service;
  return config;
}

heal::Config heal_config(const cli::Run& options) {
  heal::Config config;
  config.ward.at_once = static_cast<std::size_t>(options.heal_at_once);
  return config;
}

cephcsi::Mounter default_mounter(const cli::Run& options) {
  return options.default_mounter == "rbd" ? cephcsi::Mounter::krbd : cephcsi::Mounter::nbd;
}

ops::AdminConfig admin_config(const cli::Run& options) {
  ops::AdminConfig config;
  config.runtime_dir = options.runtime_dir;
  config.version = CORBD_VERSION;
  config.nodeid = options.nodeid;
  config.driver = options.drivername;
  return config;
}

ops::WebConfig web_config(const cli::Run& options) {
  ops::WebConfig config;
  config.address = options.metricsip;
  config.port = options.metricsport;
  config.metrics_path = options.metricspath;
  config.state_dir = options.state_dir;
  return config;
}

}  // namespace corbd
