// The input of every part of the plan, and the decisions that more than one part needs.
#pragma once

#include <optional>

#include "corbd/plan/planner.hpp"

namespace corbd::plan {

/// Everything that a decision depends on.
struct Situation {
  const std::string& id;
  const std::optional<Record>& record;
  const Observation& seen;
  const Policy& policy;
  bool take_over = false;          ///< asks rbd-nbd to leave the device
  bool operator_override = false;  ///< an operator says that no other node used the image
  bool reads_alone = false;        ///< nobody may write the image that is to be read
  bool silent = false;  ///< a request of the volume's client, or a call on an image of it, has got no answer for long
};

/// Returns "rbd/csi-vol-1 (image ID 1018aa17d94d)".
std::string image_text(const image::Name& name, const image::Key& key);
/// Returns "image rbd/csi-vol-1 (image ID 1018aa17d94d) of volume 0001-..." Needs a record.
std::string image_of(const Situation& view);

/// Time-out of a device that this agent gave a link. Other programs set another one.
inline constexpr std::uint32_t kIoTimeoutMs = 1000;

/// The way out if only a stage helps. kubelet repeats the stage of a volume in use only when it starts.
inline constexpr const char* kStageAgain = "stage it again (Kubernetes: restart kubelet, which does that)";

Decision refuse(errc code, std::string text);
Decision refuse(Error error);
Step look(Fact fact);
/// Refuses a volume that was given up. A mount of it would only give I/O errors.
Decision given_up(const Situation& view);
/// Writes a record that names its device, or none.
Step name_device(const Situation& view, std::optional<std::uint32_t> index);
Decision no_key(const Situation& view);
/// Refuses: something is mounted at a path of a volume that this agent does not know.
Decision without_record(const Situation& view, const std::string& path);
/// Returns nothing if only the volume's own mappings are above its device. `encrypted`: such may exist.
std::optional<Decision> refuse_held(const Situation& view, const device::Seen& device, bool encrypted);

/// Returns the source of a new record: where the image was found, and how the wish wants it served.
Source found_at(const Source& wished, const image::Resolved& found);

/// Whether a raw device that the record names, and that is gone, is still bound there. Needs a record.
bool shows_device_that_is_gone(const Situation& view, const std::string& target);
/// Removes a device that nobody uses.
Step remove_device(device::Kind kind);
/// Waits for a disconnected device, which goes when nobody has it open any more.
Wait until_closed(const Situation& view);

}  // namespace corbd::plan
