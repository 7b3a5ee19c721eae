// The wish Staged: the first path of a volume, another one, and what is left of a stage that did not end.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

Decision stage(const Situation& view, const Staged& wish);

/// The first record of a volume, without its kind, device and paths.
Record new_record(const Situation& view, const Staged& wish, const image::Resolved& image);

}  // namespace corbd::plan
