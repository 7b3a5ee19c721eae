// The API server's answers about this node's volumes: the proof of ownership if the image's lock is none (rule 2a), and
// the VolumeAttachment of each volume. Only a volume that needs this proof waits for it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "corbd/core/gate.hpp"
#include "corbd/kube/informer.hpp"
#include "corbd/kube/objects.hpp"
#include "corbd/plan/record.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::orchestrator {

/// Judges the VolumeAttachment that has the volume's computed name. `staged_as`: the names of the agent that staged it.
/// Pure.
plan::Attachment judge(const kube::answer<kube::VolumeAttachment>& attachment, const plan::AgentNames& own,
                       const plan::AgentNames& staged_as = {});

/// Control thread only; stop() before it is destroyed.
class Attachments {
 public:
  struct Config {
    std::string driver, node;  ///< node: its name in the API
    std::chrono::seconds answer_within{10};
    bool watch_all = false;  ///< uses one watch of all attachments, instead of one for each volume that waits
    /// Called when an attachment changed for which a volume waits.
    std::function<void(const std::string& volume_id)> changed = nullptr;
  };
  /// `api`: an error if there is no API server.
  Attachments(executor control, Clock& clock, result<kube::Api*> api, Config config);

  /// Asks the server itself, because the state of a watch may be old and proves nothing.
  task<kube::answer<kube::VolumeAttachment>> get(std::string volume_id);
  /// Judges the result of get(). The CSIDriver counts too: if its volumes are never attached, the state is `none`.
  /// Without a Node of this name, or for a volume that was staged under another name of driver or node, nothing is
  /// known.
  task<plan::Attachment> look(std::string volume_id);
  /// Works like look(), for a volume that waits for the answer. An attachment that is neither here nor away is watched
  /// until another ask() finds it here or away.
  task<plan::Attachment> ask(std::string volume_id);
  /// Writes the attachment's UID into the records of staged volumes that lack it, or the node's name, ...
  void start(volume::Volumes& volumes);
  /// ... and into the record of a volume that has just been staged.
  void note(const volume::Change& change);
  /// Asks again for a volume that is served: its attachment may have been deleted and made again.
  void note_again(const std::string& volume_id);
  task<> stop(Until until);

 private:
  task<plan::Attachment> judged(std::string volume_id, const kube::answer<kube::VolumeAttachment>& found);
  plan::Attachment judge_of(const std::string& volume_id, const kube::answer<kube::VolumeAttachment>& found) const;
  enum class Ask { always, whether_new };  ///< always: the stash may lack a value of the record
  void note(const std::string& volume_id, Ask why);
  task<> keep_asking(std::string volume_id, Ask why);
  plan::AgentNames own() const { return {config_.driver, config_.node}; }
  std::string name_of(const std::string& volume_id) const;
  void wait_for(const std::string& volume_id);
  void wait_no_more(const std::string& volume_id);
  void changed(const std::string& name, const boost::json::object* attachment);
  static task<> end(std::unique_ptr<kube::Informer> watch);

  executor control_;
  Clock& clock_;
  const result<kube::Api*> api_;
  const Config config_;
  volume::Volumes* volumes_ = nullptr;
  std::set<std::string> asked_for_;             ///< volume IDs of running keep_asking() calls
  std::map<std::string, std::string> waiting_;  ///< attachment that is neither here nor away -> volume ID
  std::map<std::string, std::unique_ptr<kube::Informer>> watches_;  ///< by the attachment's name; "" for watch_all
  bool may_watch_ = true;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::orchestrator
