// Reports stalls as events on the object that people look at: a volume's claim, else its PersistentVolume, else the
// Node. Nothing waits for it.
#pragma once

#include <map>
#include <string>

#include "corbd/core/gate.hpp"
#include "corbd/heal/notices.hpp"
#include "corbd/kube/objects.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::heal {

/// Control thread only; stop() before it is destroyed.
class Reporter {
 public:
  struct Config {
    std::string driver, node;
    std::chrono::seconds answer_within{10}, look_every{5};
  };
  Reporter(executor control, Clock& clock, result<kube::Api*> api, const volume::Volumes& volumes, Config config);
  ~Reporter();

  void note(const volume::Change& change);
  void tell(const std::string& volume_id, kube::Notice notice);
  /// Gives the reporter the volume's object, so that it need not ask for it.
  void know(const std::string& volume_id, const kube::PersistentVolume& volume);
  task<> stop(Until until);

 private:
  void tell(std::vector<Notices::Told> all);
  task<> tell_one(Notices::Told told);
  task<kube::Involved> find(std::string volume_id);
  void arm();

  Clock& clock_;
  const result<kube::Api*> api_;
  const volume::Volumes& volumes_;
  const Config config_;
  Notices notices_;
  std::unique_ptr<kube::Recorder> recorder_;
  std::map<std::string, kube::Involved> objects_;  ///< by volume ID
  Clock::TimerId timer_ = 0;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::heal
