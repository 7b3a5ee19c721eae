// Mounts and unmounts volumes of any CSI plugin, as the client of an orchestrator does (docs/sources.md#nomad), and
// survives its own end at any point: it decides by claims on disk and by what is mounted.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "corbd/core/backoff.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/manager/claims.hpp"
#include "corbd/manager/node.hpp"
#include "corbd/manager/plugin.hpp"
#include "corbd/manager/values.hpp"

namespace corbd::manager {

struct Config {
  std::string root;                   ///< holds staging/ and per-alloc/, mode 0700
  std::string locks_dir;              ///< lock files, between processes; best on tmpfs
  std::string boot_id;                ///< the running boot; empty: unknown
  std::chrono::seconds one_try{120};  ///< for each try of a call
  std::chrono::seconds look{10};      ///< for one look at a mount
  std::chrono::seconds undo{120};     ///< for undoing a failed mount
  std::chrono::seconds period{30};    ///< between two checks of the plugin
  Jitter jitter = uniform;
};

/// The ports of the manager. They outlive it.
struct Ports {
  Plugin& plugin;
  Node& node;
  Claims& claims;
};

/// Control thread only. stop() before it is destroyed, if it was started. Several processes may use one root.
class Manager {
 public:
  Manager(executor control, Clock& clock, Ports ports, Config config);
  ~Manager();

  void tell(Listener& listener);
  /// Watches the plugin until stop().
  void start();
  task<> stop(Until until);
  const Health& health() const;
  /// Asks the plugin until it is ready.
  task<result<>> wait_ready(Until until);

  /// Returns the claim once the volume is mounted at its target. Succeeds at once if it is mounted already and its
  /// device lives. Errors, besides the plugin's: invalid_argument (a target that is a link), failed_precondition (a
  /// target that holds something, or another mount), already_exists (the target, or the name, is claimed by another
  /// volume or usage, or the volume with another volume_context, or its folder by the volume under another name),
  /// unavailable (what is mounted there is unknown). A failed or cancelled mount undoes its steps, and the text has
  /// both errors if that fails too. An earlier claim stays.
  task<result<Claim>> mount(Mount wanted, Until until);
  /// Succeeds if nothing is claimed there any more. not_found: nothing was. in_use names the processes. A failed
  /// unmount leaves the claim, for a repeat. If a parent became a link, only a claim of an earlier boot can be ended:
  /// the plugin is asked to unstage, not to unpublish.
  task<result<>> unmount(std::string target, Until until);
  /// Unmounts, but keeps the claim, with `again`. An unmount that had begun is completed, and its claim with it.
  task<result<>> set_down(std::string target, Until until);
  /// Unmounts only if nothing is mounted there, judged under the locks: failed_precondition otherwise.
  task<result<>> end_unmounted(std::string target, Until until);

  /// Repeats the stage of the volume that is mounted at the target, with these secrets. False: it is not mounted, and
  /// nothing was done. already_exists: the claim there is of another volume or usage. An error of the plugin changes
  /// nothing here.
  task<result<bool>> refresh(Mount wanted, Until until);

  /// Grows the volume that is mounted there, and its filesystem, to the size of its image. Returns that size in bytes;
  /// 0: the plugin does not say. not_found: nothing was mounted there. failed_precondition: it is not mounted now.
  task<result<std::uint64_t>> expand(std::string target, Until until);

  task<result<std::vector<Claim>>> claims();
  /// Returns a target's name in its claim. A name that a claim spells so is kept, though a parent may have become a
  /// link since the mount. Any other is resolved.
  task<result<std::string>> name_of(std::string target, Until until);
  /// Returns the path of a target without links, whatever its claim calls it. not_found without a parent.
  task<result<std::string>> resolve(std::string target, Until until);
  struct Held {
    Claim claim;
    PathState sight;
    bool another = false;  ///< something else than the claim's volume is mounted there
  };
  /// Returns every claim, and what is at its target.
  task<result<std::vector<Held>>> list(Until until);
  /// Whether the volume is mounted at the target of its claim, and answers. An error if that is unknown.
  task<result<bool>> has_mount(std::string target, Until until);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Default target of a user's mount, and staging path of a usage.
std::string staging_path(const std::string& root, const PluginVolume& volume, const Usage& usage);
std::string default_target(const std::string& root, const Mount& mount);

}  // namespace corbd::manager
