// Trims the filesystems of the node from time to time, one after another and in pieces (--trim-every). Each piece is an
// operation of its own. An unstage or a handover waits for one piece, and healing for none.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "corbd/core/gate.hpp"
#include "rounds.hpp"
#include "trim_schedule.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class Trimmer {
 public:
  using Want = std::function<task<result<>>(std::string volume_id, Wish wish, Until until)>;
  Trimmer(executor control, Clock& clock, const Ports& ports, const Config& config, VolumeMap& volumes, Gate& gate,
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
  /// Ends the look that is under way after its piece, and prevents others.
  void stop() { rounds_.stop(); }
  void resume() { rounds_.resume(); }

 private:
  struct Seen {
    TrimTurn turn;
    std::string failed;  ///< why its last trim did not come to its end
    std::uint64_t requests = 0;
    time_point counted_at{};
  };
  /// The turn under way, for the log.
  struct Work {
    std::uint64_t bytes = 0;
    std::size_t pieces = 0;
  };
  task<> look(std::shared_ptr<CancelScope> leaving);
  std::optional<std::string> next();
  TrimCandidate candidate(const Volume& volume, Seen& seen);
  bool may_begin(Volume& volume, Seen& seen);
  bool helper_works(const std::string& id) const;
  task<> trim(std::string id, std::shared_ptr<CancelScope> leaving);
  void end_turn(Seen& seen, Volume& volume, const Work& work);
  void failed(Seen& seen, Volume& volume, const Error& why);
  duration every_look() const;
  executor control_;
  Clock& clock_;
  const Ports& ports_;
  const Config& config_;
  VolumeMap& volumes_;
  Gate& gate_;
  const Want want_;
  std::map<std::string, Seen> seen_;  ///< by volume ID
  std::string hung_;                  ///< volume whose helper had not ended when its piece failed; empty: none
  Rounds rounds_{clock_, gate_, [this](auto leaving) { return look(std::move(leaving)); }};
};

}  // namespace corbd::volume
