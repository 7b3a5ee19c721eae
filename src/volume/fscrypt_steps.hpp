// Steps for a volume whose files are encrypted: the folder of its filesystem, and its key.
#pragma once

#include "luks_steps.hpp"

namespace corbd::volume {

class FscryptSteps : StepTools {
 public:
  /// `luks` gives out the node's turns to derive a key.
  FscryptSteps(StepTools tools, KeySteps& keys, LuksSteps& luks) : StepTools(tools), keys_(keys), luks_(luks) {}
  task<result<>> look(Volume& volume, std::string target);
  task<result<>> make(Volume& volume, std::string target, const Wish& wish);
  task<result<>> unlock(Volume& volume, std::string target, const Wish& wish);
  task<result<>> lock(Volume& volume, std::string target);

 private:
  task<result<host::FscryptSecret>> secret_of(Volume& volume, const Wish& wish);
  task<result<DerivationTurn>> turn_for(const Volume& volume, bool passphrase);
  KeySteps& keys_;
  LuksSteps& luks_;
};

}  // namespace corbd::volume
