// Freezes filesystems while snapshots of their images are made, anywhere in the cluster, and thaws what the records
// name. Holds the requests to a raw block device back instead; such a hold ends with its process. Freezing decides;
// this carries out.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/core/gate.hpp"
#include "freezing.hpp"
#include "health_tracker.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class Snapshots {
 public:
  using Want = std::function<task<result<>>(std::string volume_id, Wish wish, Until until)>;
  Snapshots(executor control, Clock& clock, const Config& config, VolumeMap& volumes, const HealthTracker& health,
            Gate& gate, Want want)
      : control_(std::move(control)),
        clock_(clock),
        config_(config),
        volumes_(volumes),
        health_(health),
        gate_(gate),
        want_(std::move(want)) {}
  ~Snapshots();
  /// The cluster asks for a freeze of the volume. `answer` is called once.
  void asked(const std::string& volume_id, image::QuiesceHandlers::Answer answer);
  /// The snapshot is made, or was given up.
  void ended(const std::string& volume_id);
  /// Call it when a record was read, and after each operation: thaws what nobody else thaws.
  void note(const Volume& volume);
  /// Refuses further snapshots, and waits for those under way. They may end within the first time, and are thawed
  /// within the second. The next agent thaws the rest, and what has no server now.
  task<> leave(duration ends_within, duration thaws_within);
  void resume();

 private:
  struct One {
    Freezing state;
    image::QuiesceHandlers::Answer answer;
    std::string freeze_id;
    time_point since{};
    Clock::TimerId limit = 0;
    bool thaws = false;                      ///< a coroutine does
    bool inherited = false;                  ///< an earlier agent froze it
    std::shared_ptr<CancelScope> hold = {};  ///< ends the hold of a raw block device when it is cancelled
  };
  void apply(const std::string& volume_id, Freezing::In in);
  bool begin(const std::string& volume_id, One& one);
  void begin_limit(const std::string& volume_id, One& one);
  task<> freeze(std::string volume_id, std::string freeze_id, time_point until, std::shared_ptr<CancelScope> leaving);
  bool is_in(const std::string& volume_id, const std::string& freeze_id, Freezing::Phase phase) const;
  task<std::string> hold_back(Volume& volume, const std::string& freeze_id, Until until);
  task<> hold(std::string volume_id, std::string freeze_id, time_point until, std::shared_ptr<CancelScope> scope);
  void note_end(const std::string& volume_id);
  task<> thaw(std::string volume_id, std::shared_ptr<CancelScope> leaving);
  void refuse(const std::string& volume_id, const std::string& why);
  void report_broken(const std::string& volume_id, const std::string& cause);
  bool all_idle() const;
  task<> idle(time_point last);

  executor control_;
  Clock& clock_;
  const Config& config_;
  VolumeMap& volumes_;
  const HealthTracker& health_;
  Gate& gate_;
  const Want want_;
  std::map<std::string, One> all_;  ///< by volume ID
  std::uint64_t freezes_ = 0;
  bool leaving_ = false;
  std::shared_ptr<CancelScope> scope_ = std::make_shared<CancelScope>();
};

/// Where librbd keeps the image's own rbd_default_snapshot_quiesce_mode. Schedules of mirror snapshots and the command
/// `rbd` do not obey it; corbd does for all.
constexpr std::string_view kQuiesceMode = "conf_rbd_default_snapshot_quiesce_mode";
/// Whether this agent's server of it may write.
bool can_quiesce(const Record& record);
/// Whether the image's own mode, the volume's mapOptions or the agent's flag want snapshots to find it still.
/// The first of them that says something decides. `mode`: the value of kQuiesceMode, if it is set.
bool quiesces(const Record& record, const Config& config, const std::optional<std::string>& mode);

}  // namespace corbd::volume
