#include "config.hpp"

#include <algorithm>
#include <thread>
#include <tuple>

#include "corbd/agent/program.hpp"
#include "corbd/core/text.hpp"
#include "corbd/core/utc.hpp"
#include "corbd/fence/fence.hpp"
#include "corbd/v1/admin.pb.h"
#include "version.hpp"

namespace corbd::agent {

namespace {

// This is enough for one rollout of a large fleet.
constexpr std::chrono::hours kAcceptsFor{24 * 7};

}  // namespace

result<AcceptsRefused> accepts_refused(const Options& options, std::chrono::system_clock::time_point now) {
  if (options.accept_refused.empty()) return AcceptsRefused::no;
  const auto until = utc_of(options.accept_refused);
  if (!until)
    return Error{errc::invalid_argument,
                 "--accept-refused: '" + options.accept_refused +
                     "' is not a time: give a time in UTC that is at most 7 days ahead, such as "
                     "--accept-refused=" +
                     utc_text(now + std::chrono::hours(24))};
  if (now >= *until) return AcceptsRefused::over;
  return *until - now > kAcceptsFor ? AcceptsRefused::too_far : AcceptsRefused::yes;
}

handover::Side handover_side(const Options& options) {
  return {
      std::string(CORBD_VERSION) + " " + CORBD_GIT_HASH,
      plan::record_version,
      handover::identity(options.state_dir),
      options.keeper,
      true,
      options.nodeid,
      options.drivername,
      accepts_refused(options, std::chrono::system_clock::now()).value() == AcceptsRefused::yes};  // start() checked
}

rbd::Config cluster_config(const Options& options, const std::string& boot_id, bool beside) {
  rbd::Config config;
  config.boot_id = boot_id;
  config.incarnations_dir = options.state_dir + "/incarnations";
  config.predecessor_running = beside;
  config.max_connections = std::max<std::size_t>(config.max_connections, std::thread::hardware_concurrency() / 2);
  return config;
}

result<volume::FilesystemOptions> filesystem_options(const Options& options) {
  volume::FilesystemOptions all;
  const std::tuple<const char*, const std::string&, std::map<std::string, std::string>&> flags[] = {
      {"--mkfs-options", options.mkfs_options, all.mkfs},
      {"--fsck-options", options.fsck_options, all.fsck},
      {"--mount-options", options.mount_options, all.mount}};
  for (const auto& [flag, text, into] : flags) {
    auto by_type = host::options_by_type(text);
    if (!by_type) return with_context(flag, by_type.error());
    into = std::move(*by_type);
  }
  for (const auto& [type, flags_of_mount] : all.mount)
    if (("," + flags_of_mount + ",").find(",ro,") != std::string::npos)
      return Error{errc::invalid_argument, "--mount-options: 'ro' would make every " + type +
                                               " volume look as if an error had made it read-only: leave it out"};
  return all;
}

result<std::chrono::seconds> trim_every(const Options& options) {
  if (options.trim_every.empty()) return std::chrono::seconds::zero();
  const auto every = fence::read_duration(options.trim_every);
  if (!every || *every < std::chrono::minutes(1))
    return Error{errc::invalid_argument,
                 "--trim-every: '" + printable(options.trim_every) +
                     "' is not a duration of a minute or more: write a number with m, h or d, such "
                     "as --trim-every=7d"};
  return *every;
}

volume::Config shell_config(const Options& options, const std::string& boot_id) {
  volume::Config config;
  config.boot_id = boot_id;
  config.filesystems = filesystem_options(options).value();  // start() has checked them
  config.trim_every = trim_every(options).value();
  config.policy.driver = options.drivername;
  config.policy.node = options.nodeid;
  config.policy.fencing = options.fencing;
  config.policy.fence_out_of_service = options.fence_out_of_service;
  config.quiesce = options.quiesce;
  config.freeze_limit = std::chrono::seconds(options.freeze_limit_s);
  return config;
}

heal::Config heal_config(const Options& options) {
  heal::Config config;
  config.queue.at_once = static_cast<std::size_t>(options.heal_at_once);
  return config;
}

cephcsi::Mounter default_mounter(const Options& options) {
  return options.default_mounter == "rbd" ? cephcsi::Mounter::krbd : cephcsi::Mounter::nbd;
}

ops::AdminConfig admin_config(const Options& options) {
  ops::AdminConfig config;
  config.runtime_dir = options.runtime_dir;
  config.describe = [](v1::Program& into) { into = program(); };
  config.nodeid = options.nodeid;
  config.driver = options.drivername;
  config.pod = options.pod;
  return config;
}

ops::WebConfig web_config(const Options& options) {
  ops::WebConfig config;
  config.address = options.metricsip;
  config.port = options.metricsport;
  config.metrics_path = options.metricspath;
  return config;
}

}  // namespace corbd::agent
