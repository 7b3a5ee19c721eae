// A mount, unmount, refresh or expansion: asks the policy for a step, carries it out through the ports, and repeats.
#pragma once

#include <optional>
#include <string>

#include "policy.hpp"
#include "repeat.hpp"

namespace corbd::manager {

/// The caller holds the locks of target and volume.
class MountRun {
 public:
  MountRun(const Base& base, Goal wish, std::string target, Until until)
      : base_(base), wish_(std::move(wish)), target_(std::move(target)), until_(until) {}

  task<result<>> run();
  /// Undoes the steps of a failed mount in this call. An earlier claim stays.
  task<result<>> undo(Until until);
  const std::optional<Claim>& claim() const { return claim_; }
  /// Whether the plugin staged the volume in this operation.
  bool staged() const { return seen_.staged; }
  /// Returns the plugin's answer to an expansion.
  std::uint64_t capacity() const { return capacity_; }

 private:
  task<result<>> reload();
  task<result<>> steps();
  task<result<>> act(Action step);
  task<result<>> look_plugin();
  task<result<>> look_users();
  task<result<>> save(Claim::Phase phase, bool again);
  task<result<>> stage();
  task<result<>> publish();
  task<result<>> unpublish();
  task<result<>> unstage();
  task<result<>> expand();
  /// Restores the object that was at the target before the mount.
  task<result<>> put_back(unsigned mode);
  task<result<>> clean();
  /// Ignores NOT_FOUND of an unpublish or unstage: there is nothing to undo.
  static result<> ignoring_not_found(result<> answer);
  Until look_until() const { return until_.at_most(base_.clock.now() + base_.config.look); }
  Event about(std::string message) const;

  const Base& base_;
  Goal wish_;
  const std::string target_;
  Until until_;
  std::optional<Claim> claim_;
  MountFacts seen_;
  std::uint64_t capacity_ = 0;
  /// A mount was at the target before the first publish: it is not ours to undo.
  bool found_mounted_ = false;
  bool claimed_before_ = false, tried_stage_ = false, tried_publish_ = false;
};

}  // namespace corbd::manager
