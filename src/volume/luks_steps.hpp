// The steps for an encrypted volume: its LUKS header, its key slots and its mapping.
#pragma once

#include "key_steps.hpp"

namespace corbd::volume {

/// How many argon2 runs this node allows at once: each takes 32 MiB (ceph-csi #3472).
inline constexpr std::size_t kKeyDerivations = 2;

class LuksSteps : StepTools {
 public:
  LuksSteps(StepTools tools, KeySteps& keys, executor control)
      : StepTools(tools),
        keys_(keys),
        key_derivations_(control, clock_, "the turn to derive a LUKS key", kKeyDerivations),
        formats_(std::move(control), clock_, "the turn to format a volume with integrity", 1) {}
  task<result<>> look(Volume& volume, Fact fact, const Wish& wish);
  task<result<>> format(Volume& volume, const Wish& wish);
  task<result<>> note(Volume& volume);
  task<result<>> open(Volume& volume, const Wish& wish);
  task<result<>> resize(Volume& volume);
  task<result<>> close(Volume& volume);
  task<result<>> add_key(Volume& volume, const Wish& wish);
  task<result<>> new_key(Volume& volume, const Wish& wish);
  task<result<>> remove_key(Volume& volume, int slot);
  /// The turn to derive a key, which others wait for too.
  task<result<Slots::Guard>> key_derivation(const Volume& volume);

 private:
  task<result<Slots::Guard>> turn_to_format(const Volume& volume, host::LuksFormat how);
  task<result<>> look_at_keys(Volume& volume, const Wish& wish);
  KeySteps& keys_;
  Slots key_derivations_;
  Slots formats_;  ///< of volumes with integrity: each writes its whole device
};

}  // namespace corbd::volume
