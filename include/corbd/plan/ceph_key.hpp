// Which Ceph key serves a volume, when a later stage brings another one.
#pragma once

#include <optional>

#include "corbd/core/secret.hpp"
#include "corbd/plan/wish.hpp"

namespace corbd::plan {

/// A stage of a served volume does not ask the cluster, so nothing tells whether its key is right. A wrong key must not
/// replace the one that heals the volume: it is kept beside that one until the cluster has taken it.
class CephKey {
 public:
  /// The key that serves the volume; empty: none is known.
  const Secret& known() const { return known_; }
  /// The key to ask the cluster with, in the operation under way.
  const Secret& asks_with() const { return use_offered_ && offered_ ? *offered_ : known_; }
  /// known() is not in the volume's key file yet.
  bool to_be_saved() const { return !saved_ && !known_.empty(); }
  /// There are two, and the cluster has not said yet which of them is right.
  bool undecided() const { return offered_.has_value(); }

  /// Read from the key file, at the start.
  void loaded(Secret key);
  void saved() { saved_ = true; }
  /// An operation begins. Only a stage brings a key.
  void begin(const Wish& wish, bool has_record);
  /// The cluster took asks_with().
  void worked();
  /// The cluster refused asks_with(). If its key has changed, the next operation asks with the other one.
  void refused();
  /// The volume's record is gone. A stage that dropped an old one goes on with its own key.
  void record_dropped(const Wish& wish);

 private:
  Secret known_;
  bool saved_ = false;
  std::optional<Secret> offered_;
  bool use_offered_ = false;  ///< the operation under way is the stage that brought it
};

}  // namespace corbd::plan
