// Steps for the client of a volume's image: whether the cluster takes its user and key, and another client in its
// place.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "image_steps.hpp"

namespace corbd::volume {

class ClientSteps : StepTools {
 public:
  ClientSteps(StepTools tools, executor control, ImageSteps& images, const HealthTracker& health,
              CloseInBackground close_in_background)
      : StepTools(tools),
        control_(std::move(control)),
        images_(images),
        health_(health),
        close_in_background_(std::move(close_in_background)) {}
  task<result<>> try_credential(Volume& volume);
  task<result<>> look_at_user(Volume& volume);
  task<result<>> give_up_judged(Volume& volume);
  task<result<>> open_next(Volume& volume);
  /// Ends the service of a volume by its client, without notice to the kernel. The next steps serve it by a client of
  /// its present user and key. If it cannot be ended without an effect, the volume stays as it is.
  task<result<>> change(Volume& volume);
  /// Ends what a change leaves: an image that was opened for nothing, and the watch of a lock that the present client
  /// has.
  task<> end_change(Volume& volume);
  /// Handles a denied request of the image's client. Sometimes it checks whether a new client has the right, and then
  /// gives the old one up. The image may be closed afterwards.
  task<result<>> note_denial(Volume& volume);

 private:
  /// Whether that user may do with the volume's image what its server does. Answers soon, or not at all.
  task<result<>> may_serve(const Volume& volume, image::Access to);
  static void give_up(Volume& volume, const std::string& why);
  /// Tells that the volume does not have that user and key, and stays with its client.
  void not_changed(Volume& volume, const Credential& next, const Error& why) const;
  /// Whether the cluster answers only other clients of the same user, where the volume waits for it.
  task<bool> is_deaf(const Volume& volume);
  /// Whether the cluster lets the user of a client in.
  struct Trial {
    std::shared_ptr<Event> under_way;
    time_point again{};  ///< until then the answer counts
    bool refused = false, let_in = false;
  };
  executor control_;
  std::map<std::string, Trial> trials_;                                     ///< by the client's address
  std::map<std::string, time_point> compares_again_;                        ///< by volume
  std::map<std::pair<std::string, std::string>, time_point> gave_up_deaf_;  ///< by fsid and user: when
  std::set<std::string> comparing_;                                         ///< clients
  ImageSteps& images_;
  const HealthTracker& health_;
  CloseInBackground close_in_background_;
};

}  // namespace corbd::volume
