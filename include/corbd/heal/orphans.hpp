// Volumes that kubelet has forgotten (k8s#85476: unpublished, then restarted before the unstage): staged, used by no pod, and not attached here any more.
#pragma once

#include <map>
#include <string>

#include "corbd/heal/attachments.hpp"

namespace corbd::heal {

/// Control thread only; stop() before it is destroyed.
class Orphans {
 public:
  struct Config {
    bool unstage = false;                    ///< after the grace; otherwise they are only told
    std::chrono::minutes look_every{1};
    std::chrono::minutes unused_for{2};      ///< kubelet unstages what it unpublished within seconds
    std::chrono::minutes ask_every{5}, grace{10};
  };
  Orphans(executor control, Clock& clock, Attachments& attachments, volume::Volumes& volumes, Config config);
  ~Orphans();

  void start();
  task<> stop(Until until);

 private:
  struct Suspect {
    time_point since{}, asked{};
    std::optional<time_point> gone;  ///< since when its attachment was not there, without a break
    bool under_way = false;
  };
  void look();
  task<> ask(std::string volume_id);
  task<> unstage(volume::Status status);

  Clock& clock_;
  Attachments& attachments_;
  volume::Volumes& volumes_;
  const Config config_;
  std::map<std::string, Suspect> suspects_;
  Clock::TimerId timer_ = 0;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::heal
