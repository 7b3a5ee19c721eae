// The part of the plan between a device that answers and the LUKS mapping that holds an encrypted volume's filesystem.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// The open mapping; null: there is none.
const device::UpperDevice* luks_mapping(const Situation& view);
/// The next step towards the open mapping; nothing when it is, and for a volume that is not encrypted. The device
/// answers.
std::optional<Decision> open_mapping(const Situation& view, const Staged& wish);
/// The note in the image's metadata that it is encrypted, if it had to wait until the filesystem was made; nothing when
/// it is there.
std::optional<Decision> note_encrypted(const Situation& view);
/// The step that makes the open mapping as large as its device; nothing for a volume that is not encrypted, has
/// integrity, or is read-only.
std::optional<Decision> fill_mapping(const Situation& view);
/// A volume with integrity cannot be expanded.
std::optional<Decision> refuse_growth(const Situation& view);
/// The next step towards no mapping; nothing when there is none. Nobody uses it.
std::optional<Decision> close_mapping(const Situation& view);

}  // namespace corbd::plan
