// The wish Staged: the first path of a volume, another one, and the rest of a stage that did not end.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Notes a PersistentVolume that was recreated under its handle while it is staged. Nothing: the record has these
/// names.
std::optional<Step> note_claim(const Situation& view, const PvcRef& claim);

Decision stage(const Situation& view, const Staged& wish);

/// Makes the first record of a volume, without its kind, device and paths.
Record new_record(const Situation& view, const Staged& wish, const image::Resolved& image);

}  // namespace corbd::plan
