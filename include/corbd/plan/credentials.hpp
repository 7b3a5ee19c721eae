// Chooses the Ceph user and key of a volume when a later stage or its Secret brings others.
#pragma once

#include <optional>
#include <utility>

#include "corbd/plan/wish.hpp"

namespace corbd::plan {

/// A credential that comes while the volume is served may be wrong, and must not replace the one that heals the volume.
/// It is kept beside that one until the cluster has accepted it.
class Credentials {
 public:
  /// Returns the credential that serves the volume; empty: none is known.
  const Credential& known() const { return known_; }
  /// Returns the credential for the present operation's requests to the cluster.
  const Credential& asks_with() const { return use_offered_ && offered_ ? *offered_ : known_; }
  /// Whether known() is not in the volume's files yet.
  bool to_be_saved() const { return !saved_ && !known_.empty(); }
  /// known() is to be written with the record. If there are two, the cluster decides first, unless the volume's files
  /// have neither.
  bool goes_with_record() const { return to_be_saved() && !unproven_ && (!undecided() || file_lost_); }
  /// A stage brought known() for a volume whose own was lost, and the cluster has not taken it yet.
  bool unproven() const { return unproven_; }
  /// Whether `read` is one of the credentials that may serve the volume.
  bool has(const Credential& read) const { return read == known_ || (offered_ && read == *offered_); }
  /// Whether the cluster took known(), as far as this process knows.
  bool accepted() const { return !known_.empty() && !unproven_ && !swapped_; }
  /// The other one of two, between which the cluster has not decided.
  const std::optional<Credential>& other() const { return offered_; }
  /// Whether there are two, and the cluster has not decided between them.
  bool undecided() const { return offered_.has_value(); }
  /// The operation under way brought another one, which the cluster was not asked about yet.
  bool untried() const { return use_offered_ && (offered_ || unproven_) && !tried_; }

  /// Call this at the start, with the credential from the volume's files.
  void loaded(Credential credential);
  /// Call this when the cluster refused known(), and accepts this one.
  void replace(Credential credential);
  void saved() {
    saved_ = true;
    file_lost_ = false;
  }
  /// Call this when the volume's files do not have it any more.
  void file_lost() {
    saved_ = false;
    file_lost_ = true;
  }
  /// Call this when an operation begins. Only a stage, and the wish for the Secret's, bring a credential.
  void begin(const Wish& wish, bool has_record);
  /// Takes the credential of the volume's Secret, if asks_with() is empty, refused or without rights. False: this one
  /// is no better, and is not taken.
  bool take(const Credential& of_secret, errc refused);
  /// Call this when the cluster accepted asks_with().
  void worked();
  /// True once after worked(), if known() is not in the volume's files yet.
  bool take_worked() { return std::exchange(worked_, false) && to_be_saved(); }
  /// Call this when the cluster did not accept it, or could not be asked.
  void tried() { tried_ = true; }
  /// Call this when the cluster refused asks_with(). If there are two, the next operation uses the other one.
  void refused();
  /// Call this when the volume's record is gone. A stage that dropped an old one goes on with its own credential.
  void record_dropped(const Wish& wish);

 private:
  void swap();

  Credential known_;
  bool saved_ = false;
  bool file_lost_ = false;
  bool unproven_ = false;
  std::optional<Credential> offered_;
  bool swapped_ = false;      ///< swapped after a refusal, and neither has worked since
  bool use_offered_ = false;  ///< the operation under way brought one
  bool tried_ = false;        ///< by the present operation
  bool worked_ = false;       ///< known() has, since the last take_worked()
};

}  // namespace corbd::plan
