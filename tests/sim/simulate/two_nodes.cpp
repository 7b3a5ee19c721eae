// Two nodes live: their time, kubelets and applications, and the one volume that moves between them.
#include "two_nodes.hpp"

#include <algorithm>
#include <cstdio>

namespace corbd::sim {
namespace {

using namespace std::chrono_literals;
using plan::Attachment;
using plan::Wish;

}  // namespace

TwoNodes::TwoNodes(const History& history, bool trace)
    : history_(history),
      volume_(history.volumes.front()),
      trace_(trace),
      random_(history.seed * 2 + 1),
      start_(pair_.now()),
      forced_at_(time_point::max()) {
  cluster_.all = this;
  pair_.cluster.hazards = &cluster_;
  pair_.cluster.monitors_ahead = monitors_ahead(history);
  make_image(pair_.cluster, volume_);
  for (Side& side : sides_) {
    side.all = this;
    side.world = &side == sides_.data() ? &pair_.a : &pair_.b;
    side.name = side.world->name;
    side.cut_until = side.slow_death_until = side.untold_until = start_;
    side.world->hazards = &side;
    side.beside_loop = std::make_unique<test::Loop>();
    side.world->loop().stand_beside(*side.beside_loop);
    side.beside = std::make_unique<test::World>(*side.beside_loop, *side.world);
    side.processes = std::make_unique<Processes>(
        *side.world, *side.beside, Processes::Hooks{[this] { return one_in(2); }, [&side] { side.asking.reset(); }});
    for (test::World* process : {side.world, side.beside.get()}) {
      process->agent.fence_out_of_service = history.fence_out_of_service;
      process->agent.compares_names = history.seed % 4 != 0;
      process->trim_every = trim_every(history);
      process->agent.keeper = (history.keepers >> (&side - sides_.data()) & 1) != 0;
    }
  }
  tell_attachments();
}

void TwoNodes::trace(const std::string& who, const std::string& event) {
  if (!trace_) return;
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(pair_.now() - start_).count();
  std::printf("%10.3f ms  %-8s %s\n", static_cast<double>(us) / 1000, who.c_str(), event.c_str());
}

duration TwoNodes::any(duration limit) {
  return duration(
      static_cast<duration::rep>(random_() % static_cast<std::uint64_t>(std::max<duration::rep>(limit.count(), 1))));
}

Outcome TwoNodes::live() {
  for (Side& side : sides_) test::Pair::start(*side.world);
  schedule_faults();
  somebody_moves();
  for (Side& side : sides_) {
    kubelet_looks(side);
    application_works(side);
  }
  go_until(start_ + history_.length);
  stop_faults();
  converge();
  take_down();
  look_at_what_is_left();
  Outcome outcome{pair_.broken_rules()};
  for (Side& side : sides_) {
    side.processes->end();
    if (side.world->agent.running()) side.world->agent.kill();
    outcome.calls += static_cast<std::uint64_t>(side.world->calls.made);
    outcome.requests += side.world->kernel.answered;
  }
  return outcome;
}

void TwoNodes::go_until(time_point end) {
  while (pair_.now() < end && !broken()) {
    pair_.step(end);
    for (std::size_t node = 0; node < sides_.size(); ++node) look_at_handover(node);
  }
}

/// Lives end and begin here only, outside of everything else.
void TwoNodes::look_at_handover(std::size_t node) {
  Side& side = sides_.at(node);
  if (side.processes->handover() == nullptr) {
    if (std::exchange(side.hands_over, false) && side.world->agent.running()) hand_over(node);
    return;
  }
  const auto ended = side.processes->look();
  if (!ended) return;
  side.world = &side.processes->serving();
  pair_.serving.at(node) = side.world;
  side.hands_over = ended->calls_reserve && !faults_over_;
  if (ended->how != Processes::How::both_gone) return;
  pair_.loop_a.outside_in(ended->back_in.value_or(pair_.comes_back_in), [&side] { test::Pair::start(*side.world); });
}

void TwoNodes::hand_over(std::size_t node) {
  Side& side = sides_.at(node);
  pair_.serving.at(node) = nullptr;
  const auto schedule = [this, &side, of = &side.processes->begin()](std::function<void(test::Handover&)> happens) {
    pair_.loop_a.outside_in(one_in(3) ? any(3s) : any(150ms), [this, &side, of, happens = std::move(happens)] {
      if (side.processes->handover() == of && !faults_over_) happens(*of);
    });
  };
  if (one_in(4))
    schedule([](test::Handover& of) {
      if (of.before.agent.running()) of.before.loop().crash();
    });
  if (one_in(4))
    schedule([](test::Handover& of) {
      if (of.next.agent.running()) of.next.loop().crash();
    });
  if (history_.meddled) {
    side.processes->handover()->next.agent.fence_out_of_service = one_in(2);
    if (one_in(4))
      schedule([this](test::Handover& of) {
        if (of.next.agent.running() && !of.next_serves && !of.next.agent.client().empty())
          pair_.cluster.blocklist(of.next.agent.client());
      });
  }
  if (one_in(6)) schedule([lost = one_in(2)](test::Handover& of) { of.end(lost); });
  if (one_in(4)) schedule([by = any(12s)](test::Handover& of) { of.late = by; });
  if (one_in(4))
    schedule([](test::Handover& of) {
      if (of.next.agent.running() && !of.next_serves) of.tell_next_to_end();
    });
}

test::KernelDevice* TwoNodes::device_of(const Side& side) const {
  auto& devices = side.world->kernel.devices;
  return devices.empty() ? nullptr : &devices.front();
}

bool TwoNodes::is_left(const Side& side) const {
  return side.uncertain || side.may_be_published || device_of(side) != nullptr || !side.world->disk.records.empty();
}

bool TwoNodes::is_up(const Side& side) const {
  const auto* device = device_of(side);
  const auto& of = pair_.cluster.images.at(volume_.image);
  return side.staged && side.published && device != nullptr && side.world->kernel.is_served(*device) &&
         side.world->agent.clients.contains(of.exclusive ? of.lock_owner : of.writer);
}

// --- Kubelet ------------------------------------------------------------------------------------

/// One that is cut off knows what it knew before.
void TwoNodes::kubelet_looks(Side& side) {
  side.world->loop().outside_in(100ms + any(4s), [this, &side] { kubelet_looks(side); });
  if (!side.world->network.is_cut())
    side.wants_up = !unwanted_ && attached_ == wanted_ && side.world == sides_.at(wanted_).world;
  if (!side.world->agent.running() || (side.asking && side.world->agent.lives(*side.asking))) return;
  const auto& records = side.world->disk.records;
  const bool failed = std::ranges::any_of(records, [](const auto& record) { return record.failed; });
  const auto& uid = side.world->attachment.uid;
  const bool noted = uid.empty() || std::ranges::any_of(records, [&](const auto& record) {
                       return record.proof.attachment_uid == uid;
                     });
  if (side.wants_up && !failed) {
    if (!side.staged || (one_in(15) && !history_.forgetful)) return ask(side, changes_.staged(stage_wish(volume_)));
    if (!noted && !side.world->agent.misnamed() && one_in(2)) return ask(side, plan::Attached{uid});
    if (!side.published || one_in(15)) return ask(side, changes_.published(publish_wish(volume_)));
    return;
  }
  // A pod ends when its requests have.
  const auto* device = device_of(side);
  if (volume_.block && device != nullptr && !device->requests.empty()) return;
  if (side.may_be_published || (is_left(side) && one_in(3)))
    return ask(side, plan::Unpublished{publish_wish(volume_).target});
  if (is_left(side)) ask(side, plan::Unstaged{stage_wish(volume_).path});
}

void TwoNodes::ask(Side& side, Wish wish) {
  side.asking = side.world->agent.life();
  side.uncertain |= std::holds_alternative<plan::Staged>(wish);
  side.may_be_published |= std::holds_alternative<plan::Published>(wish);
  trace(side.name, std::string(plan::name(wish)));
  asio::co_spawn(side.world->loop().io, asking(side, volume_.image, std::move(wish)), asio::detached);
}

task<> TwoNodes::asking(Side& side, std::string id, Wish wish) {
  const Until until{side.world->loop().clock.now() + 2min};
  const auto done = co_await side.world->agent.shell().want(id, wish, until);
  side.asking.reset();
  side.trace(std::string(plan::name(wish)) + (done ? " done" : ": " + done.error().text));
  // What may be there must be taken down, also when it is not known to be there.
  if (std::holds_alternative<plan::Staged>(wish)) side.staged = done.has_value();
  if (std::holds_alternative<plan::Published>(wish)) side.published = done.has_value();
  if (done && std::holds_alternative<plan::Unstaged>(wish)) side.staged = side.uncertain = false;
  if (done && std::holds_alternative<plan::Unpublished>(wish)) side.published = side.may_be_published = false;
}

void TwoNodes::application_works(Side& side) {
  if (faults_over_) return;
  side.world->loop().outside_in(20ms + (one_in(3) ? any(50ms) : any(2s)), [this, &side] { application_works(side); });
  auto* device = device_of(side);
  if (device == nullptr || !side.published || !side.wants_up) return;
  const std::size_t block = random_() % test::kBlocks;
  if (one_in(4))
    side.world->kernel.application_reads(*device, block);
  else
    side.world->kernel.application_writes(*device, block);
}

// --- Where the volume is ------------------------------------------------------------------------

/// It is attached to the other node once its node has taken it down, or by force. Never to one that has it still.
void TwoNodes::somebody_moves() {
  pair_.loop_a.outside_in(500ms + any(1s), [this] { somebody_moves(); });
  if (wanted_ == attached_ || is_left(sides_.at(wanted_))) return;
  const Side& from = sides_.at(attached_);
  const bool let_go =
      !is_left(from) && !from.world->network.is_cut() && !(from.asking && from.world->agent.lives(*from.asking));
  if (let_go || pair_.now() >= forced_at_) attach();
}

void TwoNodes::attach() {
  trace("cluster", sides_.at(wanted_).name + " gets the volume");
  if (history_.orchestrated) {
    sides_.at(attached_).world->moved_away = pair_.now();
    sides_.at(wanted_).world->moved_away.reset();
  }
  attached_ = wanted_;
  ++attachments_;
  tell_attachments();
}

void TwoNodes::tell_attachments() {
  for (std::size_t i = 0; i < sides_.size(); ++i) {
    test::World& world = *sides_.at(i).world;
    const Side& other = sides_.at(1 - i);
    const bool knows = history_.orchestrated && !world.network.is_cut();
    world.attachment = !knows           ? Attachment()
                       : attached_ == i ? Attachment{Attachment::State::here, "uid-" + std::to_string(attachments_), ""}
                                        : Attachment{Attachment::State::away, "", "it is attached to " + other.name};
    world.nodes.answers = knows;
    world.nodes.by_name[other.name] = {.address = other.world->agent.node_address,
                                       .ready = !other.world->network.is_cut(),
                                       .out_of_service = other.tainted,
                                       .attached = attached_ != i};
  }
}

Outcome run_two(const History& history, bool trace) { return TwoNodes(history, trace).live(); }

}  // namespace corbd::sim
