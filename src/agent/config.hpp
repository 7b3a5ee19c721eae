// Translates the flags of `corbd run` into each room's configuration.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "corbd/agent/options.hpp"
#include "corbd/cephcsi/serving.hpp"
#include "corbd/handover/handover.hpp"
#include "corbd/heal/healer.hpp"
#include "corbd/ops/admin.hpp"
#include "corbd/ops/web.hpp"
#include "corbd/rbd/clusters.hpp"
#include "corbd/volume/shell.hpp"

namespace corbd::agent {

/// Whether --accept-refused is in force now.
enum class AcceptsRefused {
  no,       ///< it was not given
  yes,      ///< its time has not come yet
  over,     ///< its time has passed: it was given for one rollout
  too_far,  ///< its time is more than 7 days ahead, longer than a rollout takes; or this node's clock is wrong
};
/// invalid_argument: the flag's value is not a time.
result<AcceptsRefused> accepts_refused(const Options& options, std::chrono::system_clock::time_point now);
/// Describes this agent to its predecessor or successor.
handover::Side handover_side(const Options& options);
/// `beside`: see rbd::Config.
rbd::Config cluster_config(const Options& options, const std::string& boot_id, bool beside);
/// invalid_argument names the flag.
result<volume::FilesystemOptions> filesystem_options(const Options& options);
/// Reads --trim-every; zero: nothing is trimmed.
result<std::chrono::seconds> trim_every(const Options& options);
volume::Config shell_config(const Options& options, const std::string& boot_id);
heal::Config heal_config(const Options& options);
cephcsi::Mounter default_mounter(const Options& options);
ops::AdminConfig admin_config(const Options& options);
ops::WebConfig web_config(const Options& options);

}  // namespace corbd::agent
