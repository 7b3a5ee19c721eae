// What every part of the plan decides from, and the decisions that more than one part needs.
#pragma once

#include <optional>

#include "corbd/plan/planner.hpp"

namespace corbd::plan {

/// Everything a decision is made from.
struct Situation {
  const std::string& id;
  const std::optional<Record>& record;
  const Observation& seen;
  const Policy& policy;
  bool take_over = false;          ///< rbd-nbd is asked to leave the device
  bool operator_override = false;  ///< an operator says that no other node used the image
  bool reads_alone = false;        ///< nobody may write the image that is to be read
};

/// "rbd/csi-vol-1 (image ID 1018aa17d94d)"
std::string image_text(const image::Name& name, const image::Key& key);
/// "image rbd/csi-vol-1 (image ID 1018aa17d94d) of volume 0001-..." Needs a record.
std::string image_of(const Situation& view);

/// Of a device that this agent gave a link. Other programs set another one.
inline constexpr std::uint32_t kIoTimeoutMs = 1000;

/// The way out where only a stage helps. kubelet repeats the stage of a volume in use only when it starts.
inline constexpr const char* kStageAgain = "stage it again (Kubernetes: restart kubelet, which does that)";

Decision refuse(errc code, std::string text);
Decision refuse(Error error);
Step look(Fact fact);
/// The answer for a volume that was given up. A mount of it would only give I/O errors.
Decision given_up(const Situation& view);
/// A record that names its device, or none.
Step name_device(const Situation& view, std::optional<std::uint32_t> index);
Decision no_key(const Situation& view);
/// Something is mounted at a path of the volume, and nobody has told this agent of the volume.
Decision without_record(const Situation& view, const std::string& path);
/// Nothing if only the volume's own mappings are above its device. `encrypted`: such may be there.
std::optional<Decision> refuse_held(const Situation& view, const device::Seen& device, bool encrypted);

/// Where the image of a new record was found, and how the wish wants it served.
Source found_at(const Source& wished, const image::Resolved& found);

/// Whether a raw device that the record names, and that is gone, is still bound there. Needs a record.
bool shows_device_that_is_gone(const Situation& view, const std::string& target);
/// Takes away a device that nobody uses.
Step remove_device(device::Kind kind);
/// A disconnected device goes when nobody has it open any more.
Wait until_closed(const Situation& view);

}  // namespace corbd::plan
