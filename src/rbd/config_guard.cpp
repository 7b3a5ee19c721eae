#include "config_guard.hpp"

#include <algorithm>

namespace corbd::rbd {
namespace {

bool is_true(std::string_view value) { return value == "true" || value == "1" || value == "yes" || value == "on"; }

// The persistent write cache has had three names. Its plugin alone starts nothing, but with it metadata can start the
// cache when the lock is taken.
bool caches(const Option& option) {
  if (option.name == "rbd_cache" || option.name == "rbd_rwl_enabled") return is_true(option.value);
  if (option.name == "rbd_persistent_cache_mode" || option.name == "rbd_pwl_mode")
    return !option.value.empty() && option.value != "disabled";
  if (option.name == "rbd_plugins") return option.value.find("pwl_cache") != std::string::npos;
  return false;
}

/// With this option, breaking the lock leaves its owner able to write, also if that is this agent.
bool spares_owners(const Option& option) {
  return option.name == "rbd_blocklist_on_break_lock" && !is_true(option.value);
}

std::string source_and_remedy(const Option& option, const std::string& pool, const std::string& image) {
  switch (option.source) {
    case Option::Source::image:
      return "the image's metadata; remove it: rbd image-meta remove " + pool + "/" + image + " conf_" + option.name;
    case Option::Source::pool:
      return "the configuration of pool " + pool + "; remove it: rbd config pool remove " + pool + " " + option.name;
    case Option::Source::client:
      break;
  }
  return "this node's or the cluster's client configuration; remove it from /etc/ceph/ceph.conf and `ceph config`";
}

constexpr const char* kEarly = "which acknowledges writes before they are stored";
// Nothing shows later that it had a cache (plan::has_cache_after_all).
constexpr const char* kRunsOn =
    ". If an rbd-nbd has the image open, it keeps its cache all the same: let the volume be unstaged before that "
    "rbd-nbd may be killed";

std::optional<Error> refusal(const std::vector<Option>& options, bool (*bad)(const Option&), const char* harm,
                             std::string_view pool, std::string_view image) {
  const auto found = std::find_if(options.begin(), options.end(), bad);
  if (found == options.end()) return std::nullopt;
  return Error{errc::unsafe_config, "image " + std::string(pool) + "/" + std::string(image) + " has " + found->name +
                                        "=" + found->value + ", " + harm + ". It is set by " +
                                        source_and_remedy(*found, std::string(pool), std::string(image))};
}

}  // namespace

std::optional<Error> unsafe(const std::vector<Option>& options, bool exclusive_lock, std::string_view pool,
                            std::string_view image) {
  if (auto found = refusal(options, caches, kEarly, pool, image)) {
    found->text += kRunsOn;
    return found;
  }
  if (!exclusive_lock) return std::nullopt;
  auto found = refusal(options, spares_owners, "so that a client whose lock is broken can write on", pool, image);
  // An adopted volume with unsafe_config counts as one whose rbd-nbd had a cache. This option loses no write, so it
  // gets another code.
  if (found) found->code = errc::failed_precondition;
  return found;
}

std::optional<Error> decides_cache(const std::vector<Option>& options, std::string_view pool, std::string_view image) {
  constexpr std::string_view deciding[] = {"rbd_cache", "rbd_cache_policy", "rbd_cache_max_dirty"};
  for (const auto& option : options)
    if (option.source != Option::Source::client && std::ranges::find(deciding, option.name) != std::end(deciding))
      return Error{errc::unsafe_config, "image " + std::string(pool) + "/" + std::string(image) + " has " +
                                            option.name + "=" + option.value + ", set by " +
                                            source_and_remedy(option, std::string(pool), std::string(image))};
  return refusal(options, caches, kEarly, pool, image);
}

bool caches_before_flush(const std::vector<Option>& options) {
  const auto until = std::ranges::find(options, "rbd_cache_writethrough_until_flush", &Option::name);
  return until != options.end() && !is_true(until->value);
}

image::ReadPolicy read_policy(const std::vector<Option>& options) {
  const auto option = std::ranges::find(options, "rbd_read_from_replica_policy", &Option::name);
  if (option == options.end()) return image::ReadPolicy::primary;
  for (const auto policy : {image::ReadPolicy::balance, image::ReadPolicy::localize})
    if (option->value == image::name(policy)) return policy;
  return image::ReadPolicy::primary;
}

bool stamps_writes(const std::vector<Option>& options) {
  const auto interval = std::ranges::find(options, "rbd_mtime_update_interval", &Option::name);
  return interval == options.end() || interval->value != "0";
}

}  // namespace corbd::rbd
