// The part of the plan between a device that answers and the LUKS mapping that holds an encrypted volume's filesystem.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Returns the open mapping; null: there is none.
const device::UpperDevice* luks_mapping(const Situation& view);
/// Returns the next step towards the open mapping; nothing if it is open, and for a volume that is not encrypted. The
/// device answers.
std::optional<Decision> open_mapping(const Situation& view, const Staged& wish);
/// Writes the note in the image's metadata that it is encrypted, if that had to wait until the filesystem was made;
/// nothing if it exists.
std::optional<Decision> note_encrypted(const Situation& view);
/// Returns the step that makes the open mapping as large as its device; nothing for a volume that is not encrypted, has
/// integrity, or is read-only.
std::optional<Decision> fill_mapping(const Situation& view);
/// Refuses to expand a volume with integrity.
std::optional<Decision> refuse_growth(const Situation& view);
/// Returns the next step towards no mapping; nothing if there is none. Nobody uses it.
std::optional<Decision> close_mapping(const Situation& view);

}  // namespace corbd::plan
