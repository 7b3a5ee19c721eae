// Watches which volumes need healing, and tries until each answers or is given up. HealQueue decides which one to try
// and when. This class only waits and asks.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "corbd/core/gate.hpp"
#include "corbd/heal/heal_queue.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/ports.hpp"

namespace corbd::heal {

struct Config {
  HealQueue::Config queue{};
  std::chrono::seconds look_every{30};  ///< between two passes over all volumes
  std::chrono::seconds try_limit{120};  ///< limit for one try of one volume
  Jitter jitter = uniform;              ///< for the backoffs
};

/// Control thread only; stop() before it is destroyed.
class Healer final : public volume::Listener {
 public:
  Healer(executor control, Clock& clock, volume::Volumes& volumes, Config config);
  ~Healer() override;

  /// Checks every volume, now and from then on.
  void start();
  /// Tries the volume until it answers, because something happened to it. Cheap if nothing is wrong.
  void report_failure(const std::string& volume_id, const std::string& why) override;
  /// An operator's request: try now, whatever failed before. Empty: every volume without a server.
  void retry_now(const std::string& volume_id);
  const HealQueue& queue() const { return queue_; }
  task<> stop();

 private:
  void admit(const volume::Status& status, std::string why);
  void look();
  void report_stuck(const std::vector<volume::Status>& all);
  void admit_silent(const std::vector<volume::Status>& all);
  void start_due_tries();
  void arm(time_point at, Clock::TimerId& timer, void (Healer::*then)());
  task<> attempt(std::string volume_id);
  void tell(const std::string& volume_id, const Error& error);

  executor control_;
  Clock& clock_;
  volume::Volumes& volumes_;
  Config config_;
  HealQueue queue_;
  Gate gate_;
  CancelScope stopping_;
  Clock::TimerId look_timer_ = 0, next_timer_ = 0;
  std::map<std::string, std::string> told_;  ///< the last error that was logged for a volume
  std::map<std::string, bool> stuck_;        ///< volumes that were reported stuck
  std::set<std::string> silent_clients_;     ///< addresses of clients that serve a stuck volume, at the last look
};

}  // namespace corbd::heal
