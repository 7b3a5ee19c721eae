// Steps for the key of an encrypted volume: its place, a first one, and a rotation's writes to its KMS.
#pragma once

#include "step_tools.hpp"

namespace corbd::volume {

/// Makes the error for a volume that has no key anywhere.
Error no_key(const Volume& volume);

class KeySteps : StepTools {
 public:
  explicit KeySteps(StepTools tools) : StepTools(tools) {}

  /// A key in its KMS, or in its image's metadata.
  struct Found {
    std::optional<Secret> key;  ///< nothing: there is none
    plan::KeyWrites writes = {};
  };
  task<result<Found>> find(Volume& volume, const Wish& wish);
  /// Returns the key that opens the volume; failed_precondition: there is none.
  task<result<Secret>> key(Volume& volume, const Wish& wish);
  /// Returns the passphrase with which a KMS of the kind `wrapped` wraps: it opens encrypted files itself.
  task<result<Secret>> passphrase(Volume& volume, const Wish& wish);
  /// Replaces the key of that version in `writes`. The new one becomes facts.key_stored.
  task<result<>> store(Volume& volume, const Wish& wish, Secret key, plan::KeyWrites writes, bool fresh);
  /// Reads image metadata. An entry with the older name, a dot in front, is renamed.
  task<result<std::optional<std::string>>> kept_metadata(Volume& volume, std::string name);

  task<result<>> look_at_first(Volume& volume, const Wish& wish);
  task<result<>> make(Volume& volume, const Wish& wish);
  task<result<>> confirm(Volume& volume, const Wish& wish);

 private:
  /// For a KMS that takes whatever arrives last: the first key sent to it for a volume, until it was seen there.
  std::map<std::string, Secret> sent_;
};

}  // namespace corbd::volume
