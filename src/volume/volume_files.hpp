// A volume's record and key on the disk. Somebody may remove, damage or replace them after this agent wrote them.
#pragma once

#include "steps.hpp"

namespace corbd::volume {

/// What the disk no longer has as this agent wrote it.
enum class Loss { record, changed_record, key };
/// "record", or "Ceph key".
std::string name(Loss loss);
/// Why the file is written again.
std::string cause(Loss loss);

class VolumeFiles {
 public:
  VolumeFiles(const Ports& ports, Steps& steps) : ports_(ports), steps_(steps) {}
  /// `there`: the record that the disk has of this volume, if any. If the disk refused the last write, memory and file
  /// differ, and only a lost record counts.
  task<std::optional<Loss>> loss_of(Volume& volume, std::optional<Record> there);
  /// Needs the volume's lock, or that nothing is being written.
  task<bool> has_lost_key(Volume& volume, Record record);
  /// Writes the record from memory, and the key with it if either file was lost. Logs a loss.
  task<result<>> write_again(Volume& volume, std::optional<Loss> loss);
  /// The same, of what the disk has now. None, too, if it does not say.
  task<std::optional<Loss>> find_loss(Volume& volume, Until until);

 private:
  const Ports& ports_;
  Steps& steps_;
};

}  // namespace corbd::volume
