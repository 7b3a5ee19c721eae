// What the API server says of this node's volumes: the proof of ownership where the image's lock is none (rule 2a), and under which
// VolumeAttachment each volume is here. Nothing but a volume that needs that proof waits for it.
#pragma once

#include <set>
#include <string>

#include "corbd/core/gate.hpp"
#include "corbd/kube/api.hpp"
#include "corbd/volume/wish.hpp"

namespace corbd::heal {

/// Of the VolumeAttachment that has the volume's computed name. Pure.
volume::Attachment judge(const kube::answer<boost::json::object>& attachment, const std::string& driver, const std::string& node);

/// Control thread only; stop() before it is destroyed.
class Attachments {
 public:
  struct Config {
    std::string driver, node;               ///< node: its name in the API
    std::chrono::seconds answer_within{10};
  };
  /// `api`: an error where there is no API server.
  Attachments(executor control, Clock& clock, result<kube::Api*> api, Config config);

  task<volume::Attachment> ask(std::string volume_id);
  /// Notes in the records of served volumes by which attachment they are here: now, of those that do not know it ...
  void start(volume::Volumes& volumes);
  /// ... and whenever one is staged anew.
  void note(const volume::Change& change);
  task<> stop(Until until);

 private:
  void note(const std::string& volume_id);
  task<> keep_asking(std::string volume_id);

  executor control_;
  Clock& clock_;
  const result<kube::Api*> api_;
  const Config config_;
  volume::Volumes* volumes_ = nullptr;
  std::set<std::string> asked_for_;   ///< by keep_asking() now
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::heal
