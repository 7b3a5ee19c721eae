// Port to a CSI plugin: one call each, one try each. The caller decides about repeats.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/manager/values.hpp"

namespace corbd::manager {

/// Errors have the code of their gRPC status: unavailable, exhausted, timed_out, busy (ABORTED), not_found, and so on.
/// A wait that ends first is timed_out or cancelled; the plugin may then still be at work.
class Plugin {
 public:
  struct Info {
    std::string name, version;
  };
  virtual ~Plugin() = default;
  virtual task<result<Info>> info(Until until) = 0;
  /// Whether the plugin says that it is ready.
  virtual task<result<bool>> probe(Until until) = 0;
  /// Whether the plugin has STAGE_UNSTAGE_VOLUME.
  virtual task<result<bool>> stages(Until until) = 0;
  virtual task<result<>> stage(Mount mount, std::string staging, Until until) = 0;
  /// `staging` is empty for a plugin that does not stage.
  virtual task<result<>> publish(Mount mount, std::string staging, Until until) = 0;
  virtual task<result<>> unpublish(std::string external_id, std::string target, Until until) = 0;
  virtual task<result<>> unstage(std::string external_id, std::string staging, Until until) = 0;
  /// Grows the volume to the size of its image. Returns that size in bytes; 0: the plugin does not say.
  virtual task<result<std::uint64_t>> expand(Claim claim, std::string staging, Until until) = 0;
  /// Asks how full the volume is, as kubelet does regularly, and drops the numbers.
  virtual task<result<>> stats(std::string external_id, std::string target, Until until) = 0;
};

/// Speaks CSI v1 on unix:///path/to.sock, over one connection that it renews when the plugin comes back.
std::unique_ptr<Plugin> connect(executor control, Clock& clock, std::string endpoint);

}  // namespace corbd::manager
