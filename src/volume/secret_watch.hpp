// Looks from time to time whether a volume is to have another Ceph user or key than its client: its Secret has another
// one, or the volume has, and could not move yet. Nobody tells an agent of a rotation, and the cluster refuses the
// earlier key only to the next client (docs/sources.md#rotated-keys).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "corbd/core/gate.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class SecretWatch {
 public:
  using Want = std::function<task<result<>>(std::string volume_id, Wish wish, Until until)>;
  SecretWatch(Clock& clock, const Ports& ports, const Config& config, VolumeMap& volumes, Gate& gate, Want want)
      : clock_(clock), ports_(ports), config_(config), volumes_(volumes), gate_(gate), want_(std::move(want)) {}
  ~SecretWatch() { clock_.cancel(timer_); }
  /// Looks from time to time, until the gate closes.
  void start();
  /// Ends the look that is under way, and prevents others.
  void stop() { leaving_->cancel(); }
  void resume() { leaving_ = std::make_shared<CancelScope>(); }

 private:
  /// A credential that did not come to serve the volume. It is tried again with growing pauses, and another one at
  /// once.
  struct Tried {
    Credential credential;
    duration pause{};
    time_point again{};
  };
  void look_in(duration time);
  task<> look();
  task<std::optional<Credential>> wanted(std::string volume_id);
  bool is_due(const std::string& volume_id, const Credential& credential) const;
  void note(const std::string& volume_id, Credential credential);
  Clock& clock_;
  const Ports& ports_;
  const Config& config_;
  VolumeMap& volumes_;
  Gate& gate_;
  const Want want_;
  Clock::TimerId timer_ = 0;
  std::map<std::string, Tried> tried_;  ///< by volume ID
  std::shared_ptr<CancelScope> leaving_ = std::make_shared<CancelScope>();
};

}  // namespace corbd::volume
