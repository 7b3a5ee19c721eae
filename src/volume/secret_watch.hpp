// Looks from time to time whether a volume is to have another Ceph user or key than its client: its Secret has another
// one, or the volume has, and could not move yet. Nobody tells an agent of a rotation, and the cluster refuses the
// earlier key only to the next client (docs/sources.md#rotated-keys).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "corbd/core/async_lock.hpp"
#include "corbd/core/gate.hpp"
#include "rounds.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class SecretWatch {
 public:
  using Want = std::function<task<result<>>(std::string volume_id, Wish wish, Until until)>;
  SecretWatch(executor control, Clock& clock, const Ports& ports, const Config& config, VolumeMap& volumes, Gate& gate,
              Want want)
      : control_(std::move(control)),
        clock_(clock),
        ports_(ports),
        config_(config),
        volumes_(volumes),
        gate_(gate),
        want_(std::move(want)) {}
  /// Looks from time to time, until the gate closes.
  void start();
  /// Ends the look that is under way, and prevents others.
  void stop() { rounds_.stop(); }
  void resume() { rounds_.resume(); }

 private:
  /// A credential that did not come to serve the volume. It is tried again with growing pauses, and another one at
  /// once.
  struct Tried {
    Credential credential;
    duration pause{};
    time_point again{};
  };
  task<> look(std::shared_ptr<CancelScope> leaving);
  task<std::optional<Credential>> wanted(std::string volume_id);
  bool is_due(const std::string& volume_id, const Credential& credential) const;
  void note(const std::string& volume_id, Credential credential);
  /// Ready when the volume is served by its present user, or cannot be.
  task<> move(std::string volume_id, Credential credential, std::shared_ptr<CancelScope> leaving);
  task<> move_idle(std::string volume_id, Credential credential, std::shared_ptr<CancelScope> leaving);
  /// Whether it had no request since the last look.
  bool is_idle(const std::string& volume_id) const;
  void count_requests();
  executor control_;
  Clock& clock_;
  const Ports& ports_;
  const Config& config_;
  VolumeMap& volumes_;
  Gate& gate_;
  const Want want_;
  std::map<std::string, Tried> tried_;             ///< by volume ID
  std::map<std::string, std::uint64_t> requests_;  ///< by volume ID, at the last look
  std::set<std::string> moving_;                   ///< idle ones that move, or wait for their turn
  Slots idle_{control_, clock_, "moves of idle volumes", 4};
  Rounds rounds_{clock_, gate_, [this](auto leaving) { return look(std::move(leaving)); }};
};

}  // namespace corbd::volume
