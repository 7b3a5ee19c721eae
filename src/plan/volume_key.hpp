// The part of the plan for the key of an encrypted volume, LUKS or files, with any KMS: the first one, and its
// rotation. A write to a KMS may arrive at any later time, also after its sender has died. So nothing is wiped or
// replaced that such a write could still make the volume's key.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Makes sure that the KMS has the volume's key before `next` begins a format. A final refusal of the KMS then leaves
/// nothing behind.
Decision with_first_key(const Situation& view, Decision next);

/// Rotates: the old key is in slot 0, then in slot 1 too, then the new one in slot 0, which the KMS gets, then slot 1
/// is free again. At every moment a slot opens with any key that the KMS has or may get.
Decision rekey(const Situation& view);

}  // namespace corbd::plan
