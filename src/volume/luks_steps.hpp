// Steps for an encrypted volume: its LUKS header, its key slots and its mapping.
#pragma once

#include "key_steps.hpp"

namespace corbd::volume {

/// Limits of simultaneous argon2 runs on this node: each takes host::kKeyMemoryKib (ceph-csi #3472). A run that takes
/// more has all turns. Each run reads and writes a device of its cluster, so a hung cluster keeps its share.
inline constexpr std::size_t kKeyDerivations = 3, kKeyDerivationsOfCluster = 2;

/// A key may be derived while this is held.
class DerivationTurn {
 public:
  void release() { guards_.clear(); }
  void add(Slots::Guard guard) { guards_.push_back(std::move(guard)); }

 private:
  std::vector<Slots::Guard> guards_;
};

class LuksSteps : StepTools {
 public:
  LuksSteps(StepTools tools, KeySteps& keys, executor control)
      : StepTools(tools),
        keys_(keys),
        control_(std::move(control)),
        key_derivations_(control_, clock_, "the turn to derive a LUKS key", kKeyDerivations),
        costly_derivations_(control_, clock_, "the turn to derive a costly LUKS key", 1) {}
  task<result<>> look(Volume& volume, Fact fact, const Wish& wish);
  task<result<>> format(Volume& volume, const Wish& wish);
  task<result<>> note(Volume& volume);
  task<result<>> open(Volume& volume, const Wish& wish);
  task<result<>> resize(Volume& volume);
  task<result<>> close(Volume& volume);
  task<result<>> add_key(Volume& volume, const Wish& wish);
  task<result<>> new_key(Volume& volume, const Wish& wish);
  task<result<>> remove_key(Volume& volume, int slot);
  /// Waits for a turn to derive a key. `memory_kib`: memory of the derivation.
  task<result<DerivationTurn>> key_derivation(const Volume& volume, std::uint32_t memory_kib = host::kKeyMemoryKib);

 private:
  task<result<DerivationTurn>> turn_to_format(const Volume& volume, host::LuksFormat how);
  /// Waits for a turn to try a key on the header that was looked at.
  task<result<DerivationTurn>> turn_to_try(const Volume& volume);
  task<result<>> look_at_keys(Volume& volume, const Wish& wish);
  KeySteps& keys_;
  executor control_;
  Slots key_derivations_;
  std::map<std::string, Slots> key_derivations_of_;  ///< by cluster; taken before one of the node's
  Slots costly_derivations_;                         ///< one at a time, so that no two wait for each other's turns
  /// By cluster, for volumes with integrity: each writes its whole device, for as long as its cluster takes.
  std::map<std::string, Slots> formats_;
};

}  // namespace corbd::volume
