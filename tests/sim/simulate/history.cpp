#include "history.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace corbd::sim {
namespace {

using Kind = Fault::Kind;

struct Draw {
  std::mt19937_64 random;
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }
};

struct Weight {
  Kind kind;
  const char* name;
  std::uint32_t weight;
  std::uint32_t lasts_ms;  ///< at most
};

constexpr std::array kWeights{
    Weight{Kind::fail_call, "fail a call", 12, 1},
    Weight{Kind::fail_after_call, "fail a call after its effect", 8, 1},
    Weight{Kind::delay_call, "delay a call", 6, 90'000},
    Weight{Kind::crash_before_call, "crash before a call", 12, 20'000},
    Weight{Kind::crash_after_call, "crash after a call", 12, 20'000},
    Weight{Kind::kill, "kill the agent", 10, 60'000},
    Weight{Kind::cluster_dead, "the cluster is dead", 6, 150'000},
    Weight{Kind::cluster_slow, "the cluster is slow", 4, 60'000},
    Weight{Kind::fence_us, "our client is fenced by hand", 6, 1},
    Weight{Kind::visit, "another node comes", 8, 120'000},
    Weight{Kind::visit_by_force, "another node comes by force", 3, 120'000},
    Weight{Kind::links_die_slowly, "links are seen dead late", 4, 60'000},
    Weight{Kind::dead_links_untold, "LINK_DEAD is late or lost", 4, 120'000},
    Weight{Kind::wall_jump, "the wall clock jumps", 2, 1},
    Weight{Kind::suspend, "the machine is suspended", 3, 300'000},
    Weight{Kind::reboot, "the machine boots", 2, 30'000},
    Weight{Kind::disk_full, "records cannot be written", 4, 60'000},
    Weight{Kind::grow, "an image grows", 5, 1},
    Weight{Kind::remove_image, "an image is removed", 2, 1},
    Weight{Kind::give_up, "a volume is given up by hand", 2, 1},
    Weight{Kind::leave_and_return, "the agent is restarted well", 4, 10'000},
    Weight{Kind::hand_over, "the agent hands over to the next one", 6, 1},
    Weight{Kind::hold_open, "another program opens a device, and mounts it", 6, 60'000},
    Weight{Kind::take_away, "another program disconnects a device", 2, 1},
    Weight{Kind::odd_error, "OSDs answer with an error that nobody knows", 3, 30'000},
    Weight{Kind::late_command, "a command to the driver takes effect late", 5, 150'000},
    Weight{Kind::maintain, "a tool of the cluster works on an image", 4, 300'000},
    Weight{Kind::agent_waits, "another node's agent waits for an image", 3, 1},
    Weight{Kind::there_and_back, "ceph-csi is there for a while", 4, 90'000},
    Weight{Kind::override_proof, "an operator says that nobody else used a volume", 4, 1},
    Weight{Kind::leave_in_call, "the agent is told to leave in the middle of a call", 6, 10'000},
    // Drawn apart: add_fences().
    Weight{Kind::fence_node, "the cluster fences this node", 0, 150'000},
    Weight{Kind::dead_holder, "another node is cut off with an image", 0, 10'000},
    // Drawn apart: add_keepers().
    Weight{Kind::keeper_dies, "the keeper dies", 0, 20'000},
    // Drawn apart: add_growth().
    Weight{Kind::grow_under_load, "an image grows under load, and the agent dies in that moment", 0, 150'000},
    // Drawn apart: meddle().
    Weight{Kind::rotate_user, "the Ceph user is rotated", 0, 60'000},
    Weight{Kind::lower_caps, "the user's rights are lowered", 0, 90'000},
    Weight{Kind::bad_secret, "the Secret is edited badly", 0, 60'000},
    Weight{Kind::break_config, "config.json is edited badly", 0, 60'000},
    Weight{Kind::break_records, "records, or notes of clients, cannot be read", 0, 20'000},
    Weight{Kind::api_silent, "the API server is silent", 0, 120'000},
    Weight{Kind::cache_on, "a cache is switched on for an image or its pool", 0, 90'000},
    Weight{Kind::disturb_kms, "the KMS is silent, or its standby answers", 0, 120'000},
    Weight{Kind::take_entries_away, "an administrator takes our clients' entries away", 0, 1},
    Weight{Kind::damage_record, "a record is removed, or replaced by an older copy", 0, 10'000},
    Weight{Kind::rename_node, "agents begin with another --nodeid", 0, 60'000},
    Weight{Kind::switch_feature, "a feature of an image is switched", 0, 90'000},
    Weight{Kind::change_options, "the PersistentVolume's options are edited", 0, 60'000},
    Weight{Kind::end_tickets, "the Ceph user is replaced, and the old one's tickets end", 0, 60'000},
    Weight{Kind::attach_again, "the VolumeAttachment is made again under its pod", 0, 1},
    Weight{Kind::visit_with_cache, "another node dies with a persistent cache", 0, 120'000},
    Weight{Kind::visit_here, "another program of this node writes", 0, 60'000},
    // Drawn apart: make_history_of_two().
    Weight{Kind::cut_network, "a node's network is cut", 0, 150'000},
    Weight{Kind::fence_host, "a node is fenced by its host", 0, 150'000},
    Weight{Kind::out_of_service, "a node is tainted out-of-service", 0, 150'000},
    Weight{Kind::move, "the volume moves to the other node", 0, 90'000},
};

const Weight& weight_of(Kind kind) {
  return *std::find_if(kWeights.begin(), kWeights.end(), [&](const auto& one) { return one.kind == kind; });
}

Kind draw_kind(Draw& draw) {
  std::uint32_t sum = 0;
  for (const auto& one : kWeights) sum += one.weight;
  auto at = draw.below(sum);
  for (const auto& one : kWeights) {
    if (at < one.weight) return one.kind;
    at -= one.weight;
  }
  return Kind::kill;
}

/// After all else: what a seed had without them stays.
void add_fences(Draw& draw, History& history) {
  const auto in_all = [&] { return Millis(draw.below(static_cast<std::uint32_t>(history.length.count()))); };
  const auto lasts = [&](Kind kind) { return Millis(draw.below(weight_of(kind).lasts_ms)); };
  if (draw.one_in(8)) history.faults.push_back({Kind::fence_node, in_all(), lasts(Kind::fence_node), draw.below(1000)});
  if (!draw.one_in(6)) return;
  // A fence, the end of a watch, and what comes after them need their time.
  history.length = std::max<Millis>(history.length, std::chrono::minutes(2));
  // Mostly before kubelet has staged anything: later it has the volume most of the time.
  const Fault fault{Kind::dead_holder, draw.one_in(4) ? in_all() : Millis(), lasts(Kind::dead_holder),
                    draw.below(1000)};
  Volume& volume = history.volumes[fault.what % history.volumes.size()];
  volume.filled = true;  // by that node
  volume.raw = volume.begun = volume.read_only = false;
  history.fence_out_of_service = draw.one_in(2);
  history.faults.push_back(fault);
}

/// After all else, too. What is new to see needs deaths, and deaths of what comes after them.
void add_keepers(Draw& draw, History& history) {
  if (!draw.one_in(3)) return;
  history.keepers = history.nodes == 2 ? 1 + draw.below(3) : 1;
  constexpr std::array kinds{Kind::kill, Kind::crash_before_call, Kind::crash_after_call, Kind::keeper_dies};
  for (std::uint32_t more = draw.below(5); more > 0; --more) {
    const auto kind = kinds.at(draw.below(kinds.size()));
    const auto at = draw.below(static_cast<std::uint32_t>(history.length.count()));
    history.faults.push_back({kind, Millis(at), Millis(draw.below(weight_of(kind).lasts_ms)), draw.below(1000)});
    // The next agent dies of it too.
    if (draw.one_in(2))
      history.faults.push_back({Kind::crash_before_call, Millis(at + draw.below(50)), Millis(), draw.below(1000)});
  }
}

/// Once something is served that can be handed over.
void add_handovers(Draw& draw, History& history) {
  if (!draw.one_in(4)) return;
  for (std::uint32_t more = 1 + draw.below(3); more > 0; --more)
    history.faults.push_back({Kind::hand_over,
                              Millis(1000 + draw.below(static_cast<std::uint32_t>(history.length.count()))), Millis(1),
                              draw.below(1000)});
}

/// Once something is served. A keeper starts the next agent, which alone can answer what the kernel waits for.
void add_growth(Draw& draw, History& history) {
  if (history.keepers == 0 || !draw.one_in(4)) return;
  const auto at = draw.below(static_cast<std::uint32_t>(history.length.count()));
  history.faults.push_back({Kind::grow_under_load, Millis(1000 + at),
                            Millis(draw.below(weight_of(Kind::grow_under_load).lasts_ms)), draw.below(1000)});
}

/// Only where rbd-nbd serves for a while: mostly until after the agent is back, which then sees it alive.
void add_caches(Draw& draw, History& history) {
  // Nothing shows an agent that comes later that an rbd-nbd had an image without exclusive-lock.
  if (!history.orchestrated || !draw.one_in(2) || !history.volumes.front().exclusive) return;
  if (std::ranges::find(history.faults, Kind::visit_by_force, &Fault::kind) != history.faults.end()) return;
  history.caches = true;
  history.volumes.front().read_only = false;
  history.length = std::max<Millis>(history.length, std::chrono::minutes(5));
  history.faults.push_back({Kind::there_and_back, Millis(5000 + draw.below(20'000)),
                            Millis(draw.below(weight_of(Kind::there_and_back).lasts_ms)), draw.below(1000)});
}

/// Up to `most` of these. The agent mostly dies, or hands over, in the midst of it.
void add_changes(Draw& draw, History& history, std::span<const Kind> kinds, std::uint32_t most) {
  constexpr std::array ends{Kind::kill, Kind::kill, Kind::crash_after_call, Kind::fence_us, Kind::hand_over};
  history.meddled = true;
  for (std::uint32_t more = 1 + draw.below(most); more > 0; --more) {
    const auto kind = kinds[draw.below(static_cast<std::uint32_t>(kinds.size()))];
    const Fault fault{kind, Millis(draw.below(static_cast<std::uint32_t>(history.length.count()))),
                      Millis(draw.below(weight_of(kind).lasts_ms)), draw.below(1000)};
    history.faults.push_back(fault);
    if (draw.one_in(3)) continue;
    const auto end = ends.at(draw.below(ends.size()));
    history.faults.push_back({end, fault.at + Millis(draw.below(2000)),
                              Millis(draw.below(std::min<std::uint32_t>(weight_of(end).lasts_ms, 5000))), fault.what});
  }
}

/// After all else, too.
void meddle(Draw& draw, History& history) {
  constexpr std::array kinds{Kind::rotate_user,   Kind::lower_caps,       Kind::bad_secret, Kind::break_config,
                             Kind::break_records, Kind::api_silent,       Kind::cache_on,   Kind::disturb_kms,
                             Kind::attach_again,  Kind::visit_with_cache, Kind::visit_here};
  constexpr std::size_t of_any_node = 8;
  if (!draw.one_in(3)) return;
  history.forgetful = draw.one_in(2);
  add_changes(draw, history, std::span(kinds).first(history.nodes == 2 ? of_any_node : kinds.size()), 3);
}

/// After meddle(), so that a seed draws what it drew before there were these kinds.
void meddle_more(Draw& draw, History& history) {
  constexpr std::array kinds{Kind::take_entries_away, Kind::damage_record, Kind::rename_node, Kind::switch_feature,
                             Kind::change_options};
  if (draw.one_in(4)) add_changes(draw, history, kinds, 2);
}

/// After all else, too.
void end_tickets(Draw& draw, History& history) {
  constexpr std::array kinds{Kind::end_tickets};
  if (draw.one_in(5)) add_changes(draw, history, kinds, 1);
}

/// By the seed: it takes no random number from the rest.
void encrypt_files(History& history) {
  for (auto& volume : history.volumes) volume.files = !volume.kms.empty() && !volume.block && history.seed % 3 == 0;
}

}  // namespace

std::string text(const Fault& fault) {
  return "at " + std::to_string(fault.at.count()) + " ms: " + weight_of(fault.kind).name + " (" +
         std::to_string(fault.lasts.count()) + " ms, " + std::to_string(fault.what) + ")";
}

History make_history(std::uint64_t seed) {
  Draw draw{std::mt19937_64(seed)};
  History history;
  history.seed = seed;
  const std::uint32_t volumes = 1 + draw.below(3);
  for (std::uint32_t i = 0; i < volumes; ++i) {
    Volume volume;
    volume.image = "image-" + std::to_string(i);
    volume.exclusive = !draw.one_in(5);
    volume.filled = draw.one_in(3);
    volume.raw = !volume.filled && draw.one_in(10);
    volume.block = draw.one_in(4);
    volume.read_only = volume.filled && draw.one_in(5);
    history.volumes.push_back(volume);
  }
  history.length = std::chrono::seconds(20 + draw.below(160));
  const std::uint32_t faults = draw.one_in(20) ? 0 : 1 + draw.below(7);
  for (std::uint32_t i = 0; i < faults; ++i) {
    Fault fault;
    fault.kind = draw_kind(draw);
    // Half of them while the first stage is under way, which is over in a moment.
    fault.at =
        Millis(draw.one_in(2) ? draw.below(200) : draw.below(static_cast<std::uint32_t>(history.length.count())));
    // A third of them are over soon: what comes back at once meets what is still there.
    const auto lasts = weight_of(fault.kind).lasts_ms;
    fault.lasts = Millis(draw.below(draw.one_in(3) ? std::min<std::uint32_t>(lasts, 1000) : lasts));
    fault.what = draw.below(1000);
    history.faults.push_back(fault);
  }
  history.orchestrated = draw.one_in(3);
  if (history.orchestrated) {
    // The world has one attachment.
    history.volumes.resize(1);
    constexpr std::array kinds{Kind::there_and_back, Kind::visit_by_force, Kind::maintain};
    const auto kind = kinds.at(draw.below(kinds.size()));
    const auto half = static_cast<std::uint32_t>(history.length.count() / 2);
    history.faults.push_back(
        {kind, Millis(draw.below(half)), Millis(draw.below(weight_of(kind).lasts_ms)), draw.below(1000)});
  }
  constexpr std::array systems{"own", "default", "kept", "plain"};
  for (auto& volume : history.volumes)
    if (draw.one_in(3)) volume.kms = systems.at(draw.below(systems.size()));
  encrypt_files(history);
  for (auto& volume : history.volumes) volume.integrity = !volume.kms.empty() && !volume.files && seed % 3 == 1;
  for (auto& volume : history.volumes) volume.begun = !volume.filled && volume.kms.empty() && draw.one_in(6);
  add_fences(draw, history);
  add_keepers(draw, history);
  add_handovers(draw, history);
  add_growth(draw, history);
  add_caches(draw, history);
  meddle(draw, history);
  meddle_more(draw, history);
  end_tickets(draw, history);
  return history;
}

History make_history_of_two(std::uint64_t seed) {
  constexpr std::array kinds{Kind::cut_network,
                             Kind::cut_network,
                             Kind::fence_host,
                             Kind::out_of_service,
                             Kind::move,
                             Kind::move,
                             Kind::kill,
                             Kind::kill,
                             Kind::crash_before_call,
                             Kind::crash_after_call,
                             Kind::fail_call,
                             Kind::fail_after_call,
                             Kind::delay_call,
                             Kind::fence_us,
                             Kind::cluster_dead,
                             Kind::cluster_slow,
                             Kind::links_die_slowly,
                             Kind::dead_links_untold,
                             Kind::late_command};
  Draw draw{std::mt19937_64(seed)};
  History history;
  history.seed = seed;
  history.nodes = 2;
  Volume volume;
  volume.image = "image-0";
  volume.filled = !draw.one_in(4);
  volume.block = draw.one_in(4);
  if (draw.one_in(5)) volume.kms = "default";
  history.volumes.push_back(volume);
  encrypt_files(history);
  history.orchestrated = !draw.one_in(3);
  history.fence_out_of_service = draw.one_in(2);
  history.length = std::chrono::seconds(60 + draw.below(200));
  const auto add = [&](Kind kind, std::uint32_t at, std::uint32_t what) {
    const auto lasts = weight_of(kind).lasts_ms;
    history.faults.push_back(
        {kind, Millis(at), Millis(draw.below(draw.one_in(3) ? std::min<std::uint32_t>(lasts, 1000) : lasts)), what});
  };
  // The story of a dead node: it is cut off, and then somebody moves its volume.
  const auto half = static_cast<std::uint32_t>(history.length.count() / 2);
  const auto cut = draw.one_in(2) ? draw.below(300) : draw.below(half);
  const auto node = draw.one_in(4) ? 1u : 0u;
  add(Kind::cut_network, cut, node);
  const std::array ways{Kind::move, Kind::out_of_service, Kind::fence_host};
  for (const Kind way : ways)
    if (way == Kind::move || draw.one_in(2)) add(way, cut + draw.below(40'000), node);
  for (std::uint32_t more = draw.below(6); more > 0; --more)
    add(kinds.at(draw.below(kinds.size())),
        draw.one_in(3) ? draw.below(300) : draw.below(static_cast<std::uint32_t>(history.length.count())),
        draw.below(1000));
  history.volumes.front().exclusive = !draw.one_in(4);
  add_keepers(draw, history);
  add_handovers(draw, history);
  meddle(draw, history);
  meddle_more(draw, history);
  end_tickets(draw, history);
  return history;
}

History shrink(History history) {
  for (bool dropped = true; dropped;) {
    dropped = false;
    for (std::size_t i = 0; i < history.faults.size(); ++i) {
      History fewer = history;
      fewer.faults.erase(fewer.faults.begin() + static_cast<std::ptrdiff_t>(i));
      if (run(fewer, false).broken.empty()) continue;
      history = std::move(fewer);
      dropped = true;
      break;
    }
  }
  return history;
}

}  // namespace corbd::sim
