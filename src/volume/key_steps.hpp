// The steps for the key of an encrypted volume: where it is, a first one, and a rotation's writes to its KMS.
#pragma once

#include "step_tools.hpp"

namespace corbd::volume {

/// The error for a volume whose key is nowhere.
Error no_key(const Volume& volume);

class KeySteps : StepTools {
 public:
  explicit KeySteps(StepTools tools) : StepTools(tools) {}

  /// A key as its KMS, or its image's metadata, has it.
  struct Found {
    std::optional<Secret> key;  ///< nothing: there is none
    plan::KeyWrites writes = {};
  };
  task<result<Found>> find(Volume& volume, const Wish& wish);
  /// The key that opens the volume; failed_precondition: there is none.
  task<result<Secret>> key(Volume& volume, const Wish& wish);
  /// What a KMS of the kind `wrapped` wraps with: it opens encrypted files itself.
  task<result<Secret>> passphrase(Volume& volume, const Wish& wish);
  /// In place of the one that `writes` tells of. It becomes facts.key_stored.
  task<result<>> store(Volume& volume, const Wish& wish, Secret key, plan::KeyWrites writes, bool fresh);
  /// Reads image metadata. An entry with the older name, a dot in front, is renamed.
  task<result<std::optional<std::string>>> kept_metadata(Volume& volume, std::string name);

  task<result<>> look_at_first(Volume& volume, const Wish& wish);
  task<result<>> make(Volume& volume, const Wish& wish);
  task<result<>> confirm(Volume& volume, const Wish& wish);

 private:
  /// Of a KMS that takes whatever arrives last: what was sent to it as a volume's first key, until it was seen there.
  std::map<std::string, Secret> sent_;
};

}  // namespace corbd::volume
