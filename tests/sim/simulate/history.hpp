// One history of a node, made of a seed: what its volumes are, what kubelet wants, and what goes wrong when.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace corbd::sim {

using Millis = std::chrono::milliseconds;

struct Fault {
  enum class Kind {
    fail_call,
    fail_after_call,
    delay_call,
    crash_before_call,
    crash_after_call,
    kill,
    cluster_dead,
    cluster_slow,
    fence_us,
    visit,
    visit_by_force,
    links_die_slowly,
    dead_links_untold,
    wall_jump,
    suspend,
    reboot,
    disk_full,
    grow,
    remove_image,
    give_up,
    leave_and_return,
    hand_over,
    hold_open,
    take_away,
    maintain,
    agent_waits,
    there_and_back,
    override_proof,
    odd_error,
    late_command,
    leave_in_call,
    fence_node,
    dead_holder,
    keeper_dies,
    grow_under_load,
    // Only if `meddled`. In a history of two nodes, `what` names one of them as below.
    rotate_user,
    lower_caps,
    bad_secret,
    break_config,
    break_records,
    api_silent,
    cache_on,
    disturb_kms,
    take_entries_away,
    damage_record,
    rename_node,
    switch_feature,
    change_options,
    end_tickets,
    // The same, in a history of one node only.
    attach_again,
    visit_with_cache,
    visit_here,
    // Of two nodes; so are those that name a call, kill, fence_us, and those of links and the cluster. `what` is even
    // of the first node, and odd of the second.
    cut_network,
    fence_host,
    out_of_service,
    move
  } kind = Kind::kill;
  Millis at{};  ///< since the start; of a call: the first from then on
  Millis lasts{};
  std::uint32_t what = 0;  ///< which image, call, or error: as the kind needs
};
std::string text(const Fault& fault);

struct Volume {
  std::string image;
  bool exclusive = true, filled = false, raw = false, block = false, read_only = false;
  bool begun = false;      ///< it holds data, and the marker of a format that did not end, of nobody knows whom
  std::string kms;         ///< of an encrypted one: "default", "own", "kept" or "plain"
  bool files = false;      ///< of one: its files are encrypted, not its device
  bool integrity = false;  ///< of an encrypted device: by the seed, as monitors_ahead()
};

struct History {
  std::uint64_t seed = 0;
  int nodes = 1;  ///< with an agent
  std::vector<Volume> volumes;
  std::vector<Fault> faults;
  bool orchestrated = false;  ///< there are VolumeAttachments: who else writes has one, and ours is gone from then on
  bool fence_out_of_service = false;  ///< the agent's flag
  bool caches = false;                ///< rbd-nbd has a cache every other time, and the applications flush
  bool meddled = false;               ///< people change what the volumes rest on
  bool forgetful = false;             ///< kubelet never repeats a stage
  std::uint32_t keepers = 0;          ///< nodes whose agent has one, by their bits
  Millis length{};                    ///< until the faults stop
};
History make_history(std::uint64_t seed);
/// One volume and two nodes, each with a whole agent.
History make_history_of_two(std::uint64_t seed);

/// By how much the monitors' clock is before those of the nodes. By the seed: it takes no random number from the rest.
constexpr std::chrono::hours monitors_ahead(const History& history) {
  return std::chrono::hours(24) * (static_cast<int>(history.seed % 5) - 2);
}

/// Whether the volumes are staged with nbd:quiesce, and other clients make snapshots of them.
constexpr bool makes_snapshots(const History& history) { return history.seed % 8 == 5; }

/// The agents' --trim-every, by the seed too.
constexpr std::chrono::seconds trim_every(const History& history) {
  return std::chrono::seconds(history.seed % 3 == 1 ? 20 : 0);
}

/// What was broken; empty when all is well.
struct Outcome {
  std::vector<std::string> broken;
  std::uint64_t calls = 0, requests = 0;
  std::uint64_t losses_told = 0;  ///< flushes that failed over what a cache lost
};
Outcome run(const History& history, bool trace);
Outcome run_two(const History& history, bool trace);

/// The same with as few faults as still break it.
History shrink(History history);

}  // namespace corbd::sim
