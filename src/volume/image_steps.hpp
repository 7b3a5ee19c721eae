// Steps for the image: fence its dead clients; open, lock and close it; set its format marker; or put a tombstone in
// its place.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "health_tracker.hpp"
#include "step_tools.hpp"

namespace corbd::volume {

/// Waits for the requests in flight, however long that takes, then closes. The operation does not wait for it; an agent
/// that leaves does, up to its deadline.
using CloseInBackground = std::function<void(std::unique_ptr<device::Link> link, std::unique_ptr<image::Image> image)>;

class ImageSteps : StepTools {
 public:
  ImageSteps(StepTools tools, executor control, const HealthTracker& health, CloseInBackground close_in_background)
      : StepTools(tools),
        control_(std::move(control)),
        health_(health),
        close_in_background_(std::move(close_in_background)) {}
  task<result<>> fence(Volume& volume);
  task<result<>> try_credential(Volume& volume);
  task<result<>> give_up_refused_client(Volume& volume);
  task<result<>> look_at_client_user(Volume& volume);
  /// Reads a fact about the image for the planner.
  task<result<>> look(Volume& volume, Fact fact);
  task<result<>> open(Volume& volume);
  task<result<>> open_next(Volume& volume);
  task<result<>> open_tombstone(Volume& volume);
  task<result<>> lock(Volume& volume);
  task<result<>> close(Volume& volume);
  /// Handles a denied request of the image's client. Sometimes it checks whether a new client has the right, and then
  /// gives the old one up. The image may be closed afterwards.
  task<result<>> note_denial(Volume& volume);
  /// Forgets facts about the image. Facts about the node's paths, the attachment and other clients stay.
  static void forget_facts(Volume& volume);
  /// Ends what a change of the client leaves: an image that was opened for nothing, and the watch of a lock that the
  /// present client has.
  task<> end_client_change(Volume& volume);
  /// Takes the image, and the facts read from it, out of the volume. It is closed once no request of the link uses it.
  void close_in_background(Volume& volume, std::unique_ptr<device::Link> link);
  task<result<>> set_format_marker(Volume& volume);
  task<result<>> remove_format_marker(Volume& volume);

 private:
  /// Whether that user may do with the volume's image what its server does. Answers soon, or not at all.
  task<result<>> may_serve(const Volume& volume, image::Access to);
  static void give_up_client(Volume& volume, const std::string& why);
  task<result<OpenImage>> open_as_asked(Volume& volume, image::Access to, Until until);
  task<result<>> look_at_header(Volume& volume);
  /// Takes the lock or the mark, and notes how long after the look that proved the image ours. False: another client
  /// may have come since that look.
  task<result<bool>> take_lock(Volume& volume);
  task<result<>> look_at_ownership(Volume& volume);
  /// Whether the cluster lets the user of a client in.
  struct Trial {
    std::shared_ptr<Event> under_way;
    time_point again{};  ///< until then the answer counts
    bool refused = false;
  };
  executor control_;
  std::map<std::string, Trial> trials_;  ///< by the client's address
  const HealthTracker& health_;
  CloseInBackground close_in_background_;
};

}  // namespace corbd::volume
