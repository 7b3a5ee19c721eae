// What the API server says of this node's volumes: the proof of ownership where the image's lock is none (rule 2a), and
// under which VolumeAttachment each volume is here. Nothing but a volume that needs that proof waits for it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "corbd/core/gate.hpp"
#include "corbd/kube/informer.hpp"
#include "corbd/kube/objects.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::heal {

/// Of the VolumeAttachment that has the volume's computed name. Pure.
plan::Attachment judge(const kube::answer<kube::VolumeAttachment>& attachment, const std::string& driver,
                       const std::string& node);

/// Control thread only; stop() before it is destroyed.
class Attachments {
 public:
  struct Config {
    std::string driver, node;  ///< node: its name in the API
    std::chrono::seconds answer_within{10};
    bool watch_all = false;  ///< one watch of every node's, in the place of one for each volume that waits
    /// Called when the attachment of a volume changed that waits for it to be here or away.
    std::function<void(const std::string& volume_id)> changed = nullptr;
  };
  /// `api`: an error where there is no API server.
  Attachments(executor control, Clock& clock, result<kube::Api*> api, Config config);

  /// As the server has it now: what a watch told may be old, so it proves nothing.
  task<kube::answer<kube::VolumeAttachment>> get(std::string volume_id);
  /// get(), judged, also by what the CSIDriver says: none where its volumes are not attached.
  task<plan::Attachment> look(std::string volume_id);
  /// look(), for a volume that waits for it: one that is neither here nor away is watched until another ask() says that
  /// it is.
  task<plan::Attachment> ask(std::string volume_id);
  /// Notes in the records of served volumes by which attachment they are here: now, of those that do not know it ...
  void start(volume::Volumes& volumes);
  /// ... and whenever one is staged anew.
  void note(const volume::Change& change);
  task<> stop(Until until);

 private:
  task<plan::Attachment> judged(const kube::answer<kube::VolumeAttachment>& found);
  void note(const std::string& volume_id);
  task<> keep_asking(std::string volume_id);
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
  std::set<std::string> asked_for_;             ///< by keep_asking() now
  std::map<std::string, std::string> waiting_;  ///< attachments that are neither here nor away, by name: their volumes
  std::map<std::string, std::unique_ptr<kube::Informer>> watches_;  ///< by the attachment's name; of watch_all by none
  bool may_watch_ = true;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::heal
