// The part of the plan for a device of the kernel's own rbd client: it is mapped, not supervised, and unmapped. librbd
// opens the image beside it only for reading and only during a stage, to look who has the image and to keep the format
// marker.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

bool by_kernel(const Situation& view);

/// Refuses features that neither client serves. `features`: the image's.
std::optional<Decision> refuse_features(const Situation& view, const image::Features& features);

/// Does bring_up()'s work for a record of krbd.
std::optional<Decision> bring_up_krbd(const Situation& view);
/// Decides between the device and its use at that staging path: nobody else may have the image, and the record names
/// the device. Nothing for nbd.
std::optional<Decision> finish_krbd_stage(const Situation& view, const Staging& staging);
/// Opens the image for a stage that needs it. Nothing for nbd, whose image is open as long as there is a device.
std::optional<Decision> open_beside(const Situation& view);
/// Ends a stage: no image stays open beside the kernel's device.
Decision leave_to_kernel(const Situation& view);

Decision expand_krbd(const Situation& view, const Expanded& wish);

}  // namespace corbd::plan
