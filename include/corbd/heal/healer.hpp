// Watches which volumes need healing, and tries until each answers or is given up. HealQueue decides whom to try and
// when. This is the thin shell that waits and asks.
#pragma once

#include <cstdint>
#include <string>

#include "corbd/core/gate.hpp"
#include "corbd/heal/heal_queue.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/ports.hpp"

namespace corbd::heal {

struct Config {
  HealQueue::Config queue{};
  std::chrono::seconds look_every{30};   ///< between two looks at all volumes
  std::chrono::seconds try_limit{120};   ///< for one try of one volume
  std::chrono::seconds stuck_after{60};  ///< an older request is reported as stuck
  Jitter jitter = uniform;               ///< for the backoffs
};

/// Control thread only; stop() before it is destroyed.
class Healer final : public volume::Listener {
 public:
  Healer(executor control, Clock& clock, volume::Volumes& volumes, Config config);
  ~Healer() override;

  /// Looks at every volume, now and from then on.
  void start();
  /// Something happened to the volume: try it until it answers. Cheap if nothing is wrong.
  void report_failure(const std::string& volume_id, const std::string& why) override;
  /// An operator's request: try now, whatever failed before. Empty: every volume without a server.
  void hurry(const std::string& volume_id);
  const HealQueue& queue() const { return queue_; }
  task<> stop();

 private:
  void admit(const volume::Status& status, std::string why);
  void look();
  void report_stuck(const std::vector<volume::Status>& all);
  void go_on();
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
};

}  // namespace corbd::heal
