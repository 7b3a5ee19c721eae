// What people change under volumes that run, at the cluster, the KMS, the API server and on the nodes, and how they put
// it right again. Other clients of an image are Node's and TwoNodes' own.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "history.hpp"
#include "support/world/world.hpp"

namespace corbd::sim {

class Changes {
 public:
  struct Needs {
    test::Loop& loop;
    test::Cluster& cluster;
    std::vector<test::World*> nodes;  ///< one process of each
    std::function<duration(duration)> any;
  };
  Changes(const History& history, Needs needs);

  /// Carries out the fault, on `image` or on the node that `fault.what` names. False: another class has this fault.
  bool happen(const Fault& fault, const std::string& image);
  /// Puts everything right.
  void stop();
  /// The wish, with what the Secret and the PersistentVolume have now.
  plan::Staged staged(plan::Staged wish) const;
  /// The wish, with the options that the PersistentVolume has now.
  plan::Published published(plan::Published wish) const;
  /// Whether a client of an image without a lock may have been given up, whose successor only an operator can prove
  /// (docs/healing.md#another-user-or-key-for-a-running-volume).
  bool rests_on_operator() const { return has_unproven_kind() && known_.size() > 1; }
  /// Whether somebody meddled with the record of that volume: it may not be on the disk as its agent wrote it.
  bool damaged(const std::string& image) const { return damaged_.contains(image); }

 private:
  /// Whether an image has no lock, and no API server proves whose it is.
  bool has_unproven_kind() const;
  void later(duration in, std::function<void()> what);
  void rotate(const Fault& fault);
  void rotate_quietly();
  void remove_unneeded(const std::string& user);
  void end_tickets(const Fault& fault);
  void tell_secret(plan::Credential credential);
  void lower_caps(const Fault& fault);
  void break_config(const Fault& fault, test::Disk& disk);
  void break_records(const Fault& fault, test::Disk& disk);
  void switch_cache_on(const Fault& fault, const std::string& image);
  void disturb_kms(const Fault& fault);
  void take_entries_away(const Fault& fault);
  void damage_record(const Fault& fault, const std::string& image, test::World& node);
  void rename_node(const Fault& fault, test::Agent& agent);
  void switch_feature(const Fault& fault, const std::string& image);
  void change_options(const Fault& fault);
  void put_right(test::Disk& disk) const;

  const History& history_;
  const Needs needs_;
  std::vector<plan::Credential> known_;  ///< the last one is the present user's
  plan::Credential secret_;
  std::string mount_flags_, map_options_;  ///< of the PersistentVolume
  std::set<std::string> damaged_;
  bool over_ = false;
};

}  // namespace corbd::sim
