// Volumes that are staged here and attached no more. Those that no pod uses are kubelet's forgotten ones (k8s#85476:
// unpublished, then restarted before the unstage). Those that a pod uses were detached by force; what proved them ours
// when they were healed stays the proof, and people are told.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "corbd/heal/attachments.hpp"
#include "corbd/kube/recorder.hpp"

namespace corbd::heal {

/// Control thread only; stop() before it is destroyed.
class Orphans {
 public:
  struct Config {
    std::string driver;
    bool unstage = false;  ///< the forgotten ones, after the grace; otherwise they are only told
    std::chrono::minutes look_every{1};
    std::chrono::minutes unused_for{2};  ///< kubelet unstages what it unpublished within seconds
    std::chrono::minutes ask_every{5}, grace{10};
    /// VolumeOrphaned, VolumeDetached: each once, as long as it stays so.
    std::function<void(const std::string& volume_id, kube::Notice notice)> tell = nullptr;
  };
  /// own: this Node, which tells without a request of what is attached; nothing while it is not known.
  Orphans(executor control, Clock& clock, Attachments& attachments, std::function<std::optional<kube::Node>()> own,
          volume::Volumes& volumes, Config config);
  ~Orphans();

  void start();
  task<> stop(Until until);

 private:
  struct Suspect {
    time_point since{}, used{}, asked{};  ///< used: by a pod, last
    std::optional<time_point> gone;       ///< since when its attachment was not there, without a break
    bool under_way = false;  ///< it is asked about, or unstaged: until that ends it is not forgotten, nor asked again
  };
  void look();
  bool is_suspect(const volume::Status& status) const;
  task<> ask(std::string volume_id);
  task<> examine(std::string volume_id);
  void tell(const volume::Status& status, const std::string& why) const;
  task<> unstage(volume::Status status);

  Clock& clock_;
  Attachments& attachments_;
  const std::function<std::optional<kube::Node>()> own_;
  volume::Volumes& volumes_;
  const Config config_;
  std::map<std::string, Suspect> suspects_;
  std::optional<kube::Node> node_;  ///< as of the last look
  bool told_out_of_service_ = false;
  Clock::TimerId timer_ = 0;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::heal
