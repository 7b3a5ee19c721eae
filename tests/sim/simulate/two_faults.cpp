// What goes wrong on two nodes, and when.
#include <algorithm>

#include "two_nodes.hpp"

namespace corbd::sim {
namespace {

using namespace std::chrono_literals;
using Kind = Fault::Kind;

bool strikes_calls(Kind kind) {
  return kind == Kind::fail_call || kind == Kind::fail_after_call || kind == Kind::delay_call ||
         kind == Kind::crash_before_call || kind == Kind::crash_after_call || kind == Kind::late_command;
}

}  // namespace

void TwoNodes::schedule_faults() {
  for (const auto& fault : history_.faults)
    pair_.loop_a.outside(start_ + fault.at, [this, fault] {
      if (faults_over_) return;
      trace("", "FAULT " + text(fault));
      happen(fault);
    });
}

void TwoNodes::happen(const Fault& fault) {
  const auto at_end = [&](std::function<void()> then) { pair_.loop_a.outside_in(fault.lasts, std::move(then)); };
  switch (fault.kind) {
    case Kind::cluster_dead:
      pair_.cluster.dead = true;
      return at_end([this] {
        if (pair_.cluster.dead) pair_.cluster.revive();
      });
    case Kind::cluster_slow:
      pair_.cluster.slow = Millis(fault.what * 5);
      return at_end([this] { pair_.cluster.slow = duration::zero(); });
    case Kind::move:
      return move_to(1 - attached_, any(fault.lasts));
    default:
      if (changes_.happen(fault, volume_.image)) return;
      return happen_to_node(fault, sides_.at(fault.what % 2));
  }
}

void TwoNodes::happen_to_node(const Fault& fault, Side& side) {
  test::World& world = *side.world;
  const auto end = pair_.now() + fault.lasts;
  const auto at_end = [&](std::function<void()> then) { pair_.loop_a.outside(end, std::move(then)); };
  if (strikes_calls(fault.kind)) {
    side.armed.push_back(fault);
    side.armed.back().what = fault.what / 2 % (fault.kind == Kind::late_command ? 3 : 12);
    return;
  }
  switch (fault.kind) {
    case Kind::kill:
      pair_.comes_back_in = fault.lasts + 100ms;
      return side.processes->crash();
    case Kind::hand_over:
      side.hands_over = true;
      return;
    case Kind::keeper_dies:
      if (!world.agent.running() || side.processes->handover() != nullptr) return;
      world.agent.keeper_goes_too = true;
      pair_.comes_back_in = fault.lasts + 100ms;
      return world.loop().crash();
    case Kind::fence_us:
      if (!world.agent.client().empty()) pair_.cluster.blocklist(world.agent.client());
      return;
    case Kind::links_die_slowly:
      side.slow_death_until = end;
      return;
    case Kind::dead_links_untold:
      side.untold_until = end;
      return;
    case Kind::cut_network:
      side.cut_until = std::max(side.cut_until, end);
      world.network.cut();
      tell_attachments();
      return at_end([this, &side] {
        if (pair_.now() < side.cut_until) return;
        // It was away for hours, as far as the blocklist goes.
        pair_.cluster.entries_age(3h);
        side.world->network.mend();
        tell_attachments();
      });
    case Kind::fence_host:
      pair_.cluster.fence_host(world.agent.node_address, one_in(2) ? any(2s) : any(20s));
      return at_end([this, &world] { pair_.cluster.unfence_host(world.agent.node_address); });
    case Kind::out_of_service:
      side.tainted = true;
      if (&side == &sides_.at(attached_)) move_to(1 - attached_, duration::zero());
      tell_attachments();
      return at_end([this, &side] {
        side.tainted = false;
        tell_attachments();
      });
    default:
      return;
  }
}

void TwoNodes::move_to(std::size_t node, duration forced_in) {
  wanted_ = node;
  forced_at_ = pair_.now() + forced_in;
}

void TwoNodes::stop_faults() {
  trace("", "the faults are over");
  faults_over_ = true;
  pair_.comes_back_in = 100ms;
  pair_.cluster.slow = duration::zero();
  changes_.stop();
  if (pair_.cluster.dead) pair_.cluster.revive();
  for (Side& side : sides_) {
    side.armed.clear();
    side.slow_death_until = side.untold_until = pair_.now();
    side.tainted = false;
    side.world->network.mend();
    if (side.world->agent.misnamed()) side.processes->crash();
    pair_.cluster.unfence_host(side.world->agent.node_address);
    if (side.processes->handover() == nullptr) test::Pair::start(*side.world);
  }
  tell_attachments();
}

test::Fate TwoNodes::fate(Side& side, const std::string& call) {
  constexpr std::array codes{errc::unavailable, errc::io, errc::failed_precondition, errc::timed_out, errc::exhausted};
  test::Fate fate;
  fate.before = 50us + any(3ms);
  if (one_in(4)) fate.after = any(2ms);
  for (auto fault = side.armed.begin(); fault != side.armed.end(); ++fault) {
    if (fault->kind == Kind::late_command && call != "disconnect" && !call.starts_with("kernel ")) continue;
    if (fault->what-- > 0) continue;
    trace(side.name, "FAULT strikes " + call + ": " + text(*fault));
    const bool file = call.ends_with("record") || call.ends_with("key");
    const Error error{file ? errc::state_write : codes[fault->at.count() % codes.size()], "made to fail"};
    if (fault->kind == Kind::fail_call) fate.fail = error;
    if (fault->kind == Kind::fail_after_call) fate.fail_after = error;
    if (fault->kind == Kind::delay_call) (one_in(2) ? fate.before : fate.after) += fault->lasts;
    if (fault->kind == Kind::late_command) fate.before += fault->lasts;
    fate.crash_before = fault->kind == Kind::crash_before_call;
    fate.crash_after = fault->kind == Kind::crash_after_call;
    if (fate.crash_before || fate.crash_after) pair_.comes_back_in = fault->lasts + 100ms;
    side.armed.erase(fault);
    break;
  }
  return fate;
}

duration TwoNodes::Side::until_seen_dead() {
  if (world->loop().clock.now() < slow_death_until) return any(4s);
  return all->one_in(8) ? any(500ms) : any(2ms);
}

std::optional<duration> TwoNodes::Side::until_told_dead() {
  if (world->loop().clock.now() >= untold_until) return any(5ms);
  if (all->one_in(2)) return std::nullopt;
  return any(60s);
}

}  // namespace corbd::sim
