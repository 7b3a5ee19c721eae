// The wish Staged: the first path of a volume, another one, and what is left of a stage that did not end.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

Decision stage(const Situation& view, const Staged& wish);

/// Of a volume that had none: all but its kind, its device and its paths.
Record new_record(const Situation& view, const Staged& wish, const image::Resolved& image);

}  // namespace corbd::plan
