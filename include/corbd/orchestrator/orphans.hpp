// Volumes that are staged here but no longer attached. kubelet has forgotten those that no pod uses (k8s#85476: it
// unpublished them, and restarted before the unstage). Those that a pod uses were detached by force. They keep the
// proof of ownership that healed them, and people are told.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "corbd/kube/recorder.hpp"
#include "corbd/orchestrator/attachments.hpp"

namespace corbd::orchestrator {

/// Control thread only; stop() before it is destroyed.
class Orphans {
 public:
  struct Config {
    std::string driver;
    bool unstage = false;  ///< unstage forgotten volumes after the grace; otherwise only report them
    std::chrono::minutes look_every{1};
    std::chrono::minutes unused_for{2};  ///< kubelet needs only seconds from unpublish to unstage
    std::chrono::minutes ask_every{5}, grace{10};
    /// Called with VolumeOrphaned or VolumeDetached, once for as long as the state lasts.
    std::function<void(const std::string& volume_id, kube::Notice notice)> tell = nullptr;
  };
  /// own: this Node, whose status lists the attached volumes without a request; nullopt while it is unknown.
  Orphans(executor control, Clock& clock, Attachments& attachments, std::function<std::optional<kube::Node>()> own,
          volume::Volumes& volumes, Config config);
  ~Orphans();

  void start();
  /// Call this when the Node has changed. An attachment that goes and comes back between two calls is missed for a
  /// moment.
  void note_node();
  task<> stop(Until until);

 private:
  struct Suspect {
    time_point since{}, used{}, asked{};  ///< used: when a pod last used it
    std::optional<time_point> gone;       ///< since when its attachment has been missing without a break
    bool missed = false;                  ///< the Node is known, and lacks it
    bool under_way = false;               ///< a question or an unstage is under way: do not forget it or ask again
  };
  void look();
  bool is_suspect(const volume::Status& status) const;
  void note_suspects(const std::vector<volume::Status>& all);
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
  std::optional<kube::Node> node_;  ///< at the last check
  bool told_out_of_service_ = false;
  Clock::TimerId timer_ = 0;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::orchestrator
