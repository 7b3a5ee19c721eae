// Closes, in the background, the images and links that volumes no longer use. Some never close.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "corbd/core/gate.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class Closes {
 public:
  /// `leaving`: whether the agent leaves. From then on no client is judged: within a handover a volume may have no
  /// image, so its client would look as if nobody needed it.
  Closes(executor control, Clock& clock, const Ports& ports, const VolumeMap& volumes, std::function<bool()> leaving)
      : clock_(clock),
        ports_(ports),
        volumes_(volumes),
        leaving_(std::move(leaving)),
        gate_(std::move(control), clock) {}
  /// Closes the image once the link's operations on it have ended. `given_up`: the access of a volume that was given
  /// up; if its client gets no answers, and never will, that is given up too. After end() both stay as they are.
  void begin(std::unique_ptr<device::Link> link, std::unique_ptr<image::Image> image,
             std::optional<image::Access> given_up);
  /// Waits for those under way. The rest goes with the process.
  task<> end(Until until);

 private:
  task<> close(std::unique_ptr<device::Link> link, std::unique_ptr<image::Image> image,
               std::optional<image::Access> given_up);
  task<> judge_client(image::Image& image, const image::Access& as);

  /// Operations of the link on the image may be under way.
  struct LeftOpen {
    std::unique_ptr<image::Image> image;
    std::unique_ptr<device::Link> link;
  };
  Clock& clock_;
  const Ports& ports_;
  const VolumeMap& volumes_;
  const std::function<bool()> leaving_;
  Gate gate_;
  std::set<std::string> judging_;    ///< clients
  std::vector<LeftOpen> left_open_;  ///< as the agent left
};

}  // namespace corbd::volume
