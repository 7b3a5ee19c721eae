// Carries out calls of the agent's ports: outside of the agent, which may leave or die meanwhile.
#include <algorithm>

#include "support/world/ports.hpp"

namespace corbd::test {

struct Calls::Reply {
  Reply(executor control, Clock& clock) : done(std::move(control), clock) {}
  Event done;
  result<> value;
};

/// A call under way. The caller may have left, or died.
struct Calls::Asked {
  std::string call, by;
  bool of_cluster = false;
  Fate fate;
  Effect effect;
  std::weak_ptr<Reply> reply;
  int life = 0;
  time_point sent = {};
  std::function<void(const result<>&)> told = {};  ///< called when the agent's process learns its end
  std::optional<DriverCommand> command = {};
  bool begun = false;  ///< for a command
};

struct Calls::HelperJob {
  Calls& of;
  std::shared_ptr<Asked> asked;
  std::optional<std::uint32_t> device;
  std::string busy_file;
  bool syncs = false;  ///< writes the device's dirty data, and reads nothing
  bool waits = false;
  bool gone = false;  ///< ended with its machine
};

Fate Calls::next_fate(const std::string& call) {
  ++made;
  if (const auto happens = before_call) happens(call);
  Fate fate = world_.hazards != nullptr ? world_.hazards->fate(call) : Fate();
  if (crash_at > 0 && --crash_at == 0) fate.crash_before = true;
  if (crash_after_at > 0 && --crash_after_at == 0) fate.crash_after = true;
  if (call == delayed) {
    delayed.clear();
    fate.before = std::chrono::seconds(90);
  }
  if (call == crash_in) {
    crash_in.clear();
    fate.crash_before = true;
  }
  if (fail_at > 0 && --fail_at == 0) fate.fail = error;
  if (fail_after_at > 0 && --fail_after_at == 0) fate.fail_after = error;
  return fate;
}

task<> Calls::die() {
  world_.loop().crash();
  Event never(world_.loop().control(), world_.loop().clock);
  co_await never.wait({});
}

task<result<>> Calls::ask_cluster(std::string call, std::string by, Until until, Effect effect, std::string header) {
  const auto reply = std::make_shared<Reply>(world_.loop().control(), world_.loop().clock);
  const auto asked = std::make_shared<Asked>(
      Asked{call, std::move(by), true, next_fate(call), std::move(effect), reply, world_.agent.life()});
  if (asked->fate.crash_before) co_await die();
  if (asked->fate.fail) co_return with_context(call, *asked->fate.fail);
  asked->sent = world_.loop().clock.now();
  time_point at = asked->sent + asked->fate.before + world_.cluster.slow;
  if (!header.empty()) {
    std::erase_if(last_asked_, [now = world_.loop().clock.now()](const auto& entry) { return entry.second < now; });
    time_point& last = last_asked_[asked->by + " " + header];
    at = last = std::max(last, at);
  }
  world_.loop().outside(at, [this, asked] { perform(asked); });
  const Waited how = co_await reply->done.wait(until);
  if (how != Waited::cancelled) world_.agent.note_answer(asked->by, how == Waited::ready);
  if (how != Waited::ready) co_return wait_error(how, call);
  co_return reply->value;
}

task<result<>> Calls::ask_node(std::string call, Until until, Effect effect) {
  const auto reply = std::make_shared<Reply>(world_.loop().control(), world_.loop().clock);
  const auto asked =
      std::make_shared<Asked>(Asked{call, "", false, next_fate(call), std::move(effect), reply, world_.agent.life()});
  if (asked->fate.crash_before) co_await die();
  if (asked->fate.fail) co_return with_context(call, *asked->fate.fail);
  in_syscall_.push_back(asked);
  world_.loop().outside_in(asked->fate.before, [this, asked] { perform(asked); });
  const Waited how = co_await reply->done.wait(until);
  if (how != Waited::ready) co_return wait_error(how, call);
  co_return reply->value;
}

task<result<>> Calls::ask_kms(std::string call, Until until, Effect effect, bool repeats) {
  const auto reply = std::make_shared<Reply>(world_.loop().control(), world_.loop().clock);
  const auto asked =
      std::make_shared<Asked>(Asked{call, "", false, next_fate(call), std::move(effect), reply, world_.agent.life()});
  if (asked->fate.crash_before) co_await die();
  if (asked->fate.fail) co_return with_context(call, *asked->fate.fail);
  auto* hazards = world_.hazards;
  if (world_.cluster.kms_silent && hazards != nullptr) {
    world_.loop().outside_in(hazards->any(std::chrono::minutes(2)), [asked] { static_cast<void>(asked->effect()); });
    co_return Error{errc::unavailable, call + ": the KMS does not answer"};
  }
  if (repeats && hazards != nullptr && hazards->any(duration(3)).count() == 0) {
    // The request was sent again, or is under way for longer than anybody waits.
    if (hazards->any(duration(2)).count() == 0) asked->fate.before += hazards->any(std::chrono::minutes(2));
    world_.loop().outside_in(hazards->any(std::chrono::minutes(2)), [asked] { static_cast<void>(asked->effect()); });
  }
  world_.loop().outside_in(asked->fate.before, [this, asked] { finish(asked, asked->effect()); });
  const Waited how = co_await reply->done.wait(until);
  if (how != Waited::ready) co_return wait_error(how, call);
  co_return reply->value;
}

task<result<>> Calls::ask_driver(std::string call, std::string backend, Until until, DriverCommand command) {
  const auto reply = std::make_shared<Reply>(world_.loop().control(), world_.loop().clock);
  const auto asked =
      std::make_shared<Asked>(Asked{call, "", false, next_fate(call), command.effect, reply, world_.agent.life()});
  if (asked->fate.crash_before) co_await die();
  if (asked->fate.fail) co_return with_context(call, *asked->fate.fail);
  asked->command = std::move(command);
  const auto place = under_way.insert(under_way.end(), {std::move(backend), {call, world_.loop().clock.wall()}, asked});
  asked->told = [this, place, ended = asked->command->ended](const result<>& value) {
    under_way.erase(place);
    if (ended) ended(value);
    begin_command();
  };
  begin_command();
  const Waited how = co_await reply->done.wait(until);
  if (how == Waited::ready) co_return reply->value;
  if (!asked->begun) under_way.erase(place);
  co_return wait_error(how, call);
}

/// Begins none while a helper's is under way: the agents of a node exclude each other's commands.
void Calls::begin_command() {
  if (under_way.empty() || under_way.front().asked == nullptr || under_way.front().asked->begun) return;
  if (world_.kernel.frozen)
    return world_.kernel.after_thaw([this, life = world_.agent.life()] {
      if (world_.agent.lives(life)) begin_command();
    });
  const auto asked = under_way.front().asked;
  asked->begun = true;
  if (asked->command->begins) asked->command->begins();
  in_syscall_.push_back(asked);
  world_.loop().outside_in(asked->fate.before, [this, asked] { perform_command(asked); });
}

void Calls::perform_command(const std::shared_ptr<Asked>& asked) {
  if (!world_.agent.lives(asked->life)) return;
  // Another process's resize is under way. The driver's mutex lets nobody leave.
  if (world_.kernel.frozen) return world_.kernel.after_thaw([this, asked] { perform_command(asked); });
  std::erase(in_syscall_, asked);
  const auto& command = *asked->command;
  if (command.may)
    if (auto may = command.may(); !may) return finish(asked, may);
  const World* by = command.by_helper ? nullptr : &world_;
  const auto then = [this, asked] { finish(asked, asked->effect()); };
  if (!command.freezes || !world_.kernel.freeze(*command.freezes, by, then)) then();
}

/// Ends a process with its syscalls: each completes then, or was not begun. The next process starts later, because a
/// thread that waits in the kernel keeps the lock of the state directory.
void Calls::end() {
  under_way.clear();
  std::erase_if(world_.kernel.disconnected_by_us, [this](const auto& one) { return std::get<0>(one) == &world_; });
  for (const auto& asked : std::exchange(in_syscall_, {}))
    if (world_.hazards != nullptr && (asked->command || asked->fate.before < std::chrono::seconds(1)) &&
        world_.hazards->any(duration(2)).count() == 0) {
      // The helper that gives it for the agent sees that the agent is gone, or that another one's is under way.
      if (asked->command && (asked->command->may || world_.kernel.frozen)) continue;
      static_cast<void>(asked->effect());
      world_.trace(asked->call + " (of a dead agent)");
    }
}

void Calls::perform(std::shared_ptr<Asked> asked) {
  const bool lives = world_.agent.lives(asked->life);
  if (!asked->of_cluster) {
    if (!lives) return;
    std::erase(in_syscall_, asked);
    // The caller has left before it was begun.
    if (asked->reply.expired()) return;
  }
  // The asker is dead: the message was sent already, or it was not.
  if (!lives && (world_.hazards == nullptr || world_.hazards->any(duration(2)).count() == 0)) return;
  if (asked->of_cluster && world_.cluster.ticketless.contains(asked->by)) {
    if (lives) world_.loop().outside_in(kConnectsAgain, [this, asked] { perform(asked); });
    return;
  }
  if (asked->of_cluster && world_.cluster.dead) {
    world_.cluster.hold([this, asked] { perform(asked); });
    return;
  }
  if (asked->of_cluster &&
      (!world_.network.carries(asked->sent) || (world_.network.is_cut() && world_.cluster.refuses(asked->by)))) {
    world_.network.hold([this, asked] { perform(asked); });
    return;
  }
  if (asked->of_cluster && world_.cluster.refuses(asked->by)) {
    world_.agent.note_cut(asked->by);
    return finish(asked, Error{errc::fenced, asked->call + ": the cluster has blocklisted this client"});
  }
  finish(asked, asked->effect());
}

void Calls::finish(const std::shared_ptr<Asked>& asked, result<> value) {
  const bool lives = world_.agent.lives(asked->life);
  world_.trace(asked->call + (lives ? "" : " (of a dead agent)") + (value ? "" : ": " + value.error().text));
  if (lives && asked->fate.crash_after) return world_.loop().crash();
  if (asked->fate.fail_after) value = with_context(asked->call, *asked->fate.fail_after);
  deliver(asked, std::move(value));
}

void Calls::deliver(const std::shared_ptr<Asked>& asked, result<> value) {
  auto tell = [this, asked, value = std::move(value)] {
    if (asked->told && world_.agent.lives(asked->life)) asked->told(value);
    const auto reply = asked->reply.lock();
    if (!reply) return;
    reply->value = value;
    reply->done.set();
  };
  const auto hear = [this, asked, tell = std::move(tell)] {
    asked->of_cluster&& world_.network.is_cut() ? world_.network.hold(tell) : tell();
  };
  if (asked->fate.after == duration::zero()) return hear();
  world_.loop().outside_in(asked->fate.after, hear);
}

// --- Helpers ------------------------------------------------------------------------------------

task<result<>> Calls::ask_helper(std::string call, std::optional<std::uint32_t> device, HelperOwner owner, Until until,
                                 Effect effect) {
  constexpr std::chrono::seconds patience{60};
  const auto reply = std::make_shared<Reply>(world_.loop().control(), world_.loop().clock);
  const auto asked =
      std::make_shared<Asked>(Asked{call, "", false, next_fate(call), std::move(effect), reply, world_.agent.life()});
  if (asked->fate.crash_before) co_await die();
  if (asked->fate.fail) co_return with_context(call, *asked->fate.fail);
  const auto job =
      std::make_shared<HelperJob>(HelperJob{*this, asked, device, std::move(owner.busy_file), call == "unmount"});
  helpers_.push_back(job);
  world_.loop().outside_in(asked->fate.before, [this, job] { run_helper(job); });
  const bool patient = until.deadline > world_.loop().clock.now() + patience;
  const Waited how = co_await reply->done.wait(until.at_most(world_.loop().clock.now() + patience));
  if (how == Waited::deadline && patient)
    co_return Error{errc::unavailable, call + " is stuck: its helper was left behind"};
  if (how != Waited::ready) co_return wait_error(how, call);
  co_return reply->value;
}

void Calls::run_helper(const std::shared_ptr<HelperJob>& job) {
  if (job->gone) return;
  KernelDevice* device = job->device ? world_.kernel.by_index(*job->device) : nullptr;
  if (device != nullptr && device->alive) {
    const auto link = world_.kernel.links.find(device->link);
    const FakeOpened* image = link == world_.kernel.links.end() ? nullptr : link->second->opened();
    // The image's first request finds out.
    if (image != nullptr && !image->read_only() && !world_.network.is_cut())
      if (const FakeImage* of = world_.cluster.by_id(device->image_id);
          of != nullptr && !world_.cluster.may_write(*of, image->client())) {
        if (world_.cluster.refuses(image->client())) world_.agent.note_cut(image->client());
        link->second->hold();
      }
    if (image != nullptr && world_.network.is_cut() && (!job->syncs || !device->requests.empty())) {
      job->waits = true;
      world_.trace(job->asked->call + " waits for the network");
      return;
    }
  }
  if (device != nullptr && world_.kernel.frozen && world_.kernel.frozen->device == device->index) {
    world_.kernel.after_thaw([job] { job->of.run_helper(job); });
    return;
  }
  if (device != nullptr && device->alive && job->syncs && !device->requests.empty()) {
    // The helper checks again; seldom, as long as nobody can answer.
    const auto in = world_.cluster.dead ? std::chrono::milliseconds(100) : std::chrono::milliseconds(1);
    world_.loop().outside_in(in, [this, job] { run_helper(job); });
    return;
  }
  // It opens the device, and reads nothing of one that was open before.
  const bool only_opens = job->asked->call == "check unused";
  const bool needs_device = !only_opens || (device != nullptr && device->unscanned);
  // Nobody reads its request, and the kernel has not noticed that yet.
  const bool unread = device != nullptr && device->alive && device->kind == device::Kind::nbd &&
                      !device->disconnected && !world_.kernel.is_read(*device);
  if (unread && needs_device && world_.hazards != nullptr) {
    world_.loop().outside_in(std::chrono::milliseconds(1), [job] { job->of.run_helper(job); });
    return;
  }
  if (device != nullptr && !device->alive && !device->disconnected && needs_device &&
      (only_opens || world_.hazards != nullptr)) {
    job->waits = true;
    world_.trace(job->asked->call + " waits for " + device::path(device->index));
    return;
  }
  std::erase(helpers_, job);
  const auto& asked = job->asked;
  // A thaw succeeds whatever becomes of its writes (ext4_unfreeze() and xfs_fs_unfreeze() in Linux).
  const bool opens = !job->syncs && asked->call != "luks close" && asked->call != "thaw";
  if (device != nullptr && opens) device->unscanned = false;
  const bool lives = world_.agent.lives(asked->life);
  const bool reads = opens && !only_opens;
  result<> value = device != nullptr && device->disconnected && reads
                       ? Error{errc::io, device::path(device->index) + " is disconnected"}
                       : asked->effect();
  world_.trace(asked->call + (lives ? "" : " (left by a dead agent)") + (value ? "" : ": " + value.error().text));
  if (lives && asked->fate.crash_after) return world_.loop().crash();
  if (asked->fate.fail_after) value = with_context(asked->call, *asked->fate.fail_after);
  deliver(asked, std::move(value));
}

void Calls::wake_helpers(std::uint32_t index) {
  for (const auto& job : helpers_) {
    if (!job->waits || job->device != index) continue;
    job->waits = false;
    world_.loop().outside_in(std::chrono::milliseconds(1), [job] { job->of.run_helper(job); });
  }
}

bool Calls::busy(const std::string& file) const {
  return std::any_of(helpers_.begin(), helpers_.end(), [&](const auto& job) { return job->busy_file == file; });
}

void Calls::end_helpers() {
  for (const auto& job : helpers_) job->gone = true;
  helpers_.clear();
}

}  // namespace corbd::test
