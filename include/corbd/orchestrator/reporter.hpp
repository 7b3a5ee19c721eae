// Reports stalls as Events on the object that people look at: a volume's claim, else its PersistentVolume, else the
// Node. Nothing waits for it.
#pragma once

#include <string>

#include "corbd/core/gate.hpp"
#include "corbd/kube/objects.hpp"
#include "corbd/orchestrator/notices.hpp"
#include "corbd/orchestrator/volume_objects.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::orchestrator {

/// Control thread only; stop() before it is destroyed.
class Reporter {
 public:
  struct Config {
    std::string node;  ///< its name in the API
    std::chrono::seconds look_every{5};
  };
  /// `api`: an error if there is no API server.
  Reporter(executor control, Clock& clock, const result<kube::Api*>& api, VolumeObjects& objects,
           const volume::Volumes& volumes, Config config);
  ~Reporter();

  void note(const volume::Change& change);
  void tell(const std::string& volume_id, kube::Notice notice);
  /// Reports an Event on the Node.
  void tell_node(kube::Notice notice);
  task<> stop(Until until);

 private:
  void tell(std::vector<Notices::Told> all);
  task<> tell_one(Notices::Told told);
  task<kube::Involved> find(std::string volume_id);
  void arm();

  Clock& clock_;
  VolumeObjects& objects_;
  const volume::Volumes& volumes_;
  const Config config_;
  Notices notices_;
  std::unique_ptr<kube::Recorder> recorder_;
  Clock::TimerId timer_ = 0;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::orchestrator
