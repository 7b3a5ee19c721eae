// Steps for the image: fence its dead clients; open, lock and close it; set its format marker; or put a tombstone in
// its place.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "health_tracker.hpp"
#include "step_tools.hpp"

namespace corbd::volume {

/// Waits for the requests in flight, however long that takes, then closes. The operation does not wait for it; an agent
/// that leaves does, up to its deadline.
/// `given_up`: how the client of a volume that was given up had connected. A close that the cluster does not answer,
/// since it refuses that client's user, would be in the way of the image's next stage here.
using CloseInBackground = std::function<void(std::unique_ptr<device::Link> link, std::unique_ptr<image::Image> image,
                                             std::optional<image::Access> given_up)>;

/// Where the requests of snapshotters go.
struct SnapshotSink {
  std::function<void(const std::string& volume_id, image::QuiesceHandlers::Answer answer)> asked;
  std::function<void(const std::string& volume_id)> ended;
};

class ImageSteps : StepTools {
 public:
  ImageSteps(StepTools tools, const HealthTracker& health, CloseInBackground close_in_background,
             SnapshotSink snapshots)
      : StepTools(tools),
        health_(health),
        close_in_background_(std::move(close_in_background)),
        snapshots_(std::move(snapshots)) {}
  task<result<>> fence(Volume& volume);
  /// Reads a fact about the image for the planner.
  task<result<>> look(Volume& volume, Fact fact);
  task<result<>> open(Volume& volume);
  /// Opens the image by a client of this operation's user and key, without the lock, and leaves what serves the volume.
  task<result<OwnImage>> open_as_asked(Volume& volume, image::Access to, Until until);
  task<result<>> open_tombstone(Volume& volume);
  task<result<>> lock(Volume& volume);
  task<result<>> close(Volume& volume);
  /// Forgets facts about the image. Facts about the node's paths, the attachment and other clients stay.
  static void forget_facts(Volume& volume);
  /// Takes the image, and the facts read from it, out of the volume. It is closed once no request of the link uses it.
  void close_in_background(Volume& volume, std::unique_ptr<device::Link> link);
  task<result<>> set_format_marker(Volume& volume);
  task<result<>> remove_format_marker(Volume& volume);

 private:
  task<result<>> look_at_header(Volume& volume);
  /// Takes the lock or the mark, and notes how long after the look that proved the image ours. False: another client
  /// may have come since that look.
  task<result<bool>> take_lock(Volume& volume);
  task<result<>> look_at_ownership(Volume& volume);
  /// Without the watch the volume is served all the same: its snapshots are then not frozen.
  task<> watch_snapshots(Volume& volume);
  const HealthTracker& health_;
  CloseInBackground close_in_background_;
  SnapshotSink snapshots_;
};

}  // namespace corbd::volume
