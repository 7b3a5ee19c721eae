// What goes wrong, and when.
#include <algorithm>
#include <cerrno>

#include "node.hpp"

namespace corbd::sim {
namespace {

using namespace std::chrono_literals;
using Kind = Fault::Kind;

bool of_call(Kind kind) {
  return kind == Kind::fail_call || kind == Kind::fail_after_call || kind == Kind::delay_call ||
         kind == Kind::crash_before_call || kind == Kind::crash_after_call || kind == Kind::late_command ||
         kind == Kind::leave_in_call;
}

bool to_driver(const std::string& call) { return call == "disconnect" || call.starts_with("kernel "); }

}  // namespace

void Node::schedule_faults() {
  for (const auto& fault : history_.faults)
    loop_.outside(start_ + fault.at, [this, fault] {
      if (faults_over_) return;
      trace("FAULT " + text(fault));
      happen(fault);
    });
}

void Node::happen(const Fault& fault) {
  const auto end = loop_.clock.now() + fault.lasts;
  if (of_call(fault.kind)) {
    armed_.push_back(fault);
    armed_.back().what = fault.what % (fault.kind == Kind::late_command ? 3 : 12);
    return;
  }
  switch (fault.kind) {
    case Kind::reboot:
      reboots_ = agent().keeper_goes_too = true;
      down_for_ = fault.lasts;
      [[fallthrough]];
    case Kind::kill:
      if (!agent().running() && processes_.handover() == nullptr) break;
      down_for_ = fault.lasts;
      if (agent().keeper && !reboots_) return die_under_load();
      processes_.crash();
      break;
    case Kind::keeper_dies:
      return keeper_dies(fault);
    case Kind::leave_and_return:
      if (!agent().running()) break;
      down_for_ = fault.lasts;
      leaves_well_ = true;
      break;
    case Kind::hand_over:
      hands_over_ = agent().running() && processes_.handover() == nullptr;
      break;
    case Kind::cluster_dead:
      world_.cluster.dead = true;
      dead_until_ = std::max(dead_until_, end);
      loop_.outside(end, [this] {
        if (world_.cluster.dead && loop_.clock.now() >= dead_until_) world_.cluster.revive();
      });
      break;
    case Kind::cluster_slow:
      world_.cluster.slow = Millis(fault.what * 5);
      loop_.outside(end, [this] { world_.cluster.slow = duration::zero(); });
      break;
    case Kind::odd_error:
      world_.cluster.odd_error = EBADE;
      loop_.outside(end, [this] { world_.cluster.odd_error = 0; });
      break;
    case Kind::fence_us:
      // Or in the middle of what the agent does next.
      if (fault.what % 2 == 1) {
        armed_.push_back(fault);
        armed_.back().what = fault.what % 12;
      } else if (!agent().client().empty()) {
        world_.cluster.blocklist(agent().client());
      }
      break;
    case Kind::links_die_slowly:
      slow_death_until_ = end;
      break;
    case Kind::dead_links_untold:
      untold_until_ = end;
      break;
    case Kind::disk_full:
      disk_full_until_ = end;
      break;
    case Kind::wall_jump:
      loop_.clock.wall_offset += std::chrono::hours(static_cast<int>(fault.what) - 500);
      break;
    case Kind::suspend:
      suspended_for_ = fault.lasts;
      break;
    case Kind::grow_under_load:
      return grow_under_load(fault);
    case Kind::there_and_back:
      return there_and_back(fault);
    case Kind::fence_node:
      return fence_node(fault);
    case Kind::hold_open:
    case Kind::take_away:
      happen_to_device(fault);
      break;
    case Kind::attach_again:
      return attach_again();
    default:
      if (!changes_.happen(fault, history_.volumes[fault.what % history_.volumes.size()].image)) happen_to_image(fault);
  }
}

/// What is under way then is what the next agent goes on with.
void Node::die_under_load() {
  for (std::size_t i = 0; i < kubelets_.size(); ++i) application_hurries(i, loop_.clock.now() + 500ms);
  loop_.outside_in(any(300ms), [this] {
    if (!faults_over_) processes_.crash();
  });
}

/// Requests are in flight when the kernel resizes the device. Then the cluster does not answer them, and the agent
/// dies.
void Node::grow_under_load(const Fault& fault) {
  const auto image = world_.cluster.images.find(history_.volumes[fault.what % history_.volumes.size()].image);
  if (image == world_.cluster.images.end()) return;
  for (std::size_t i = 0; i < kubelets_.size(); ++i) application_hurries(i, loop_.clock.now() + 3s);
  world_.cluster.slow = 30ms;
  loop_.outside_in(3s, [this] { world_.cluster.slow = duration::zero(); });
  world_.kernel.on_freeze = [this, fault] {
    if (faults_over_) return;
    happen({Kind::cluster_dead, fault.at, fault.lasts, fault.what});
    loop_.outside_in(any(500ms), [this] {
      if (!faults_over_) processes_.crash();
    });
  };
  loop_.outside_in(100ms, [this, name = image->first] {
    const auto grows = world_.cluster.images.find(name);
    if (grows == world_.cluster.images.end()) return;
    grows->second.size += 1 << 20;
    world_.cluster.resized(grows->second.id);
  });
}

/// With its agent, before it, or after it, while no other one runs yet.
void Node::keeper_dies(const Fault& fault) {
  if (!agent().keeper || !agent().running() || processes_.handover() != nullptr) return;
  down_for_ = fault.lasts;
  // It gets SIGTERM.
  if (fault.what % 3 == 0) {
    leaves_well_ = true;
    return;
  }
  processes_.crash();
  if (fault.what % 3 == 1) {
    agent().keeper_goes_too = true;
    return;
  }
  loop_.outside_in(any(50ms), [this] {
    if (agent().running()) return;
    trace("the keeper dies");
    agent().keeper_dies();
  });
}

void Node::happen_to_image(const Fault& fault) {
  const std::string name = history_.volumes[fault.what % history_.volumes.size()].image;
  const auto place = world_.cluster.images.find(name);
  if (place == world_.cluster.images.end()) return;
  switch (fault.kind) {
    case Kind::visit:
      return visit(fault, false);
    case Kind::visit_by_force:
      return visit(fault, true);
    case Kind::visit_with_cache:
      return visit_with_cache(fault);
    case Kind::visit_here:
      return visit_here(fault);
    case Kind::maintain:
      return maintain(fault);
    case Kind::agent_waits:
      return agent_waits(fault);
    case Kind::dead_holder:
      return dead_holder(fault);
    case Kind::override_proof:
      return override_proof(fault.what % history_.volumes.size());
    case Kind::remove_image:
      return world_.cluster.remove_image(name);
    case Kind::grow:
      place->second.size += 1 << 20;
      return world_.cluster.resized(place->second.id);
    case Kind::give_up:
      if (agent().running()) {
        agent().given_up.insert(name);
        ask(fault.what % history_.volumes.size(), plan::GivenUp{});
      }
      return;
    default:
      return;
  }
}

void Node::happen_to_device(const Fault& fault) {
  const auto* device = device_of(history_.volumes[fault.what % history_.volumes.size()].image);
  if (device == nullptr) return;
  const auto index = device->index;
  if (fault.kind == Kind::take_away) return world_.kernel.disconnect(index);
  world_.kernel.open_device(index);
  const std::string by_hand = "/mnt/" + std::to_string(fault.at.count());
  if (fault.what % 5 == 0) world_.kernel.mount_by_hand(index, by_hand);
  if (fault.what % 5 < 3) world_.kernel.automounts.insert_or_assign(index, by_hand);
  // Of that device; one that is made in its place later is another.
  loop_.outside_in(fault.lasts, [this, index, by_hand] {
    world_.kernel.automounts.erase(index);
    world_.kernel.unmount_by_hand(index, by_hand);
    world_.kernel.close_device(index);
  });
}

/// ceph-csi's pod takes the place of ours. Its healer knows volumes by their attachments, waits until the watches of
/// the last client are over, and ends with its pod, mostly by SIGKILL.
void Node::there_and_back(const Fault& fault) {
  if (!agent().running() || processes_.handover() != nullptr) return;
  const auto away = fault.lasts + 45s;
  down_for_ = away;
  agent().keeper_goes_too = true;
  if (fault.what % 2 == 0)
    processes_.crash();
  else
    leaves_well_ = true;
  if (!history_.orchestrated) return;
  loop_.outside_in(36s, [this, what = fault.what] { ceph_csi_heals(what); });
  // Before ours is back, or only then.
  loop_.outside_in(away + (fault.what % 3 == 0 ? 20s : -3s), [this, cleanly = fault.what % 7 == 0] {
    while (!world_.ceph_csi.daemons.empty()) world_.ceph_csi.ends(world_.ceph_csi.daemons.begin()->first, cleanly);
  });
}

void Node::ceph_csi_heals(std::uint32_t what) {
  if (agent().running() || world_.cluster.dead || faults_over_ || is_fenced() ||
      world_.attachment.state != plan::Attachment::State::here)
    return;
  for (auto& device : world_.kernel.devices) {
    const auto* image = world_.cluster.by_id(device.image_id);
    const auto record = std::ranges::find(world_.disk.records, device.backend, &plan::Record::volume_id);
    if (image == nullptr || !image->watchers.empty() || device.visits != image->visits ||
        record == world_.disk.records.end() || record->failed || record->use.read_only)
      continue;
    world_.ceph_csi.heals(device.index);
    if (history_.caches && what % 5 < 3 && world_.ceph_csi.daemons.contains(device.index))
      world_.ceph_csi.caching.insert(device.index);
  }
}

/// An operator who knows what he says, or one whom the agent must not believe.
void Node::override_proof(std::size_t i) {
  const std::string& name = history_.volumes[i].image;
  const auto* device = device_of(name);
  if (faults_over_ || !world_.cluster.images.contains(name) || device == nullptr || device->alive || !agent().running())
    return;
  for (const auto& [agent, of] : waiting_)
    if (of == name && !moved_at_) return;
  const bool true_word = device->visits == world_.cluster.images.at(name).visits;
  // A false word does no harm as long as the API server says that the volume is away.
  if (!true_word && (!moved_at_ || world_.nodes.silent)) return;
  overridden_.insert(name);
  ask(i, plan::Healed{true});
}

void Node::stop_faults() {
  trace("the faults are over");
  faults_over_ = true;
  armed_.clear();
  slow_death_until_ = untold_until_ = disk_full_until_ = loop_.clock.now();
  world_.cluster.slow = duration::zero();
  world_.cluster.odd_error = 0;
  if (world_.cluster.dead) world_.cluster.revive();
  for (const auto& [visitor, visit] : visitors_)
    if (const auto image = world_.cluster.images.find(visit.first); image != world_.cluster.images.end())
      world_.cluster.leave(image->second, visitor, visit.second);
  visitors_.clear();
  changes_.stop();
  for (auto& [name, image] : world_.cluster.images) image.features &= ~test::FakeImage::kDirtyCache;
  if (is_fenced()) world_.cluster.unfence_host(agent().node_address);
  while (!world_.ceph_csi.daemons.empty()) world_.ceph_csi.ends(world_.ceph_csi.daemons.begin()->first, false);
  lifecycle();
  const auto end = loop_.clock.now() + 10min;
  while (processes_.handover() != nullptr && loop_.clock.now() < end && world_.broken_rules.empty()) step(end);
  if (processes_.handover() != nullptr) world_.broke("a handover does not end");
  // An upgrade with the right name.
  leaves_well_ |= agent().misnamed();
  // Whoever serves now may have been told to leave meanwhile.
  lifecycle();
  start_agent();
}

/// SIGTERM under load, with an operation under way.
void Node::leave_in_call(Millis comes_back_in) {
  for (std::size_t i = 0; i < kubelets_.size(); ++i) application_hurries(i, loop_.clock.now() + 3s);
  loop_.outside_in(any(500ms), [this, comes_back_in] {
    if (faults_over_ || !agent().running()) return;
    down_for_ = comes_back_in;
    leaves_well_ = true;
  });
}

// --- Calls --------------------------------------------------------------------------------------

Error Node::error_of(const std::string& call, std::uint32_t what) const {
  constexpr std::array codes{errc::unavailable, errc::io, errc::failed_precondition, errc::timed_out, errc::exhausted};
  const bool file = call.ends_with("record") || call.ends_with("key");
  return {file ? errc::state_write : codes[what % codes.size()], "made to fail"};
}

test::Fate Node::fate(const std::string& call) {
  test::Fate fate;
  fate.before = 50us + any(3ms);
  if (one_in(4)) fate.after = any(2ms);
  // Before it is written, or when it is: then nobody knows whether it was.
  if (loop_.clock.now() < disk_full_until_ && call.starts_with("save"))
    (one_in(2) ? fate.fail : fate.fail_after) = Error{errc::state_write, "no space left on the device"};
  for (auto fault = armed_.begin(); fault != armed_.end(); ++fault) {
    if (fault->kind == Kind::late_command && !to_driver(call)) continue;
    if (fault->what-- > 0) continue;
    trace("FAULT strikes " + call + ": " + text(*fault));
    switch (fault->kind) {
      case Kind::fail_call:
        fate.fail = error_of(call, static_cast<std::uint32_t>(fault->at.count()));
        break;
      case Kind::fail_after_call:
        fate.fail_after = error_of(call, static_cast<std::uint32_t>(fault->at.count()));
        break;
      case Kind::delay_call:
        (one_in(2) ? fate.before : fate.after) += fault->lasts;
        break;
      case Kind::late_command:
        fate.before += fault->lasts;
        break;
      case Kind::crash_before_call:
        fate.crash_before = true;
        break;
      case Kind::fence_us:
        if (!agent().client().empty()) world_.cluster.blocklist(agent().client());
        break;
      case Kind::leave_in_call:
        // A mkfs, an umount or a look at the cluster lasts longer than the agent may take to leave, or not quite.
        (one_in(2) ? fate.before : fate.after) += any(5s);
        leave_in_call(fault->lasts);
        break;
      default:
        fate.crash_after = true;
    }
    if (fate.crash_before || fate.crash_after) down_for_ = fault->lasts;
    armed_.erase(fault);
    break;
  }
  return fate;
}

duration Node::until_seen_dead() {
  if (loop_.clock.now() < slow_death_until_) return any(4s);
  return one_in(8) ? any(500ms) : any(2ms);
}

std::optional<duration> Node::until_told_dead() {
  if (loop_.clock.now() >= untold_until_) return any(5ms);
  if (one_in(2)) return std::nullopt;
  return any(60s);
}

}  // namespace corbd::sim
