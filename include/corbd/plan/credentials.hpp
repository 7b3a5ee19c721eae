// Which Ceph user and key serve a volume, when a later stage or its Secret brings others.
#pragma once

#include <optional>
#include <utility>

#include "corbd/plan/wish.hpp"

namespace corbd::plan {

/// A credential that comes while the volume is served may be wrong, and must not replace the one that heals the volume:
/// it is kept beside that one until the cluster has taken it.
class Credentials {
 public:
  /// The one that serves the volume; empty: none is known.
  const Credential& known() const { return known_; }
  /// The one to ask the cluster with, in the operation under way.
  const Credential& asks_with() const { return use_offered_ && offered_ ? *offered_ : known_; }
  /// known() is not in the volume's files yet.
  bool to_be_saved() const { return !saved_ && !known_.empty(); }
  /// known() is to be written with the record. If there are two, the cluster decides first, unless the volume's files
  /// have neither.
  bool goes_with_record() const { return to_be_saved() && (!undecided() || file_lost_); }
  /// `read` is one of the credentials that may serve the volume.
  bool has(const Credential& read) const { return read == known_ || (offered_ && read == *offered_); }
  /// There are two, and the cluster has not said yet which of them is right.
  bool undecided() const { return offered_.has_value(); }
  /// The operation under way brought another one, which the cluster was not asked about yet.
  bool untried() const { return use_offered_ && offered_ && !tried_; }

  /// Read from the volume's files, at the start.
  void loaded(Credential credential);
  /// The cluster refused known(), and takes this one.
  void replace(Credential credential);
  void saved() {
    saved_ = true;
    file_lost_ = false;
  }
  /// The volume's files do not have it any more.
  void file_lost() {
    saved_ = false;
    file_lost_ = true;
  }
  /// An operation begins. Only a stage brings a credential.
  void begin(const Wish& wish, bool has_record);
  /// The volume's Secret has this one, and asks_with() is empty, refused or without rights. False: this one is no
  /// better, and is not taken.
  bool take(const Credential& of_secret, errc refused);
  /// The cluster took asks_with().
  void worked();
  /// Once after worked(): known() is not in the volume's files yet.
  bool take_worked() { return std::exchange(worked_, false) && to_be_saved(); }
  /// The cluster did not take it, or could not be asked.
  void tried() { tried_ = true; }
  /// The cluster refused asks_with(). If there are two, the next operation asks with the other one.
  void refused();
  /// The volume's record is gone. A stage that dropped an old one goes on with its own credential.
  void record_dropped(const Wish& wish);

 private:
  void swap();

  Credential known_;
  bool saved_ = false;
  bool file_lost_ = false;
  std::optional<Credential> offered_;
  bool swapped_ = false;      ///< after a refusal, and neither has worked since
  bool use_offered_ = false;  ///< the operation under way brought it
  bool tried_ = false;        ///< by the operation under way
  bool worked_ = false;       ///< known() did, since somebody asked
};

}  // namespace corbd::plan
