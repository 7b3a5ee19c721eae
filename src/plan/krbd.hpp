// The part of the plan for a device of the kernel's own rbd client: it is mapped, watched over by nobody, and unmapped.
// librbd opens the image beside it, only for reading and only during a stage: it looks who has the image, and keeps the
// format marker.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

bool by_kernel(const Situation& view);

/// Features that neither client serves. `features`: of the image.
std::optional<Decision> refuse_features(const Situation& view, const image::Features& features);

/// As bring_up(), for a record of krbd.
std::optional<Decision> bring_up_krbd(const Situation& view);
/// Between the device and its use at that staging path: nobody else has the image, and the record names the device.
/// Nothing for nbd.
std::optional<Decision> finish_krbd_stage(const Situation& view, const Staging& staging);
/// Opens the image for a stage that needs it. Nothing for nbd, whose image is open as long as there is a device.
std::optional<Decision> open_beside(const Situation& view);
/// The end of a stage: no image stays open beside the kernel's device.
Decision leave_to_kernel(const Situation& view);

Decision expand_krbd(const Situation& view, const Expanded& wish);

}  // namespace corbd::plan
