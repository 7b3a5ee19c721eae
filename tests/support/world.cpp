// The agent's lives, and how a call of one of its ports comes to pass.
#include "support/world.hpp"

#include <algorithm>

#include "corbd/heal/healer.hpp"
#include "support/world_ports.hpp"

namespace corbd::test {
namespace {

task<result<>> any_path(std::string, bool) { co_return result<>(); }

result<volume::Cluster> find_cluster(const std::string& id) {
  if (id != "lab") return Error{errc::not_found, "no cluster " + id};
  return volume::Cluster{{"10.0.0.9"}, ""};
}

}  // namespace

struct World::Reply {
  Reply(executor control, Clock& clock) : done(std::move(control), clock) {}
  Event done;
  result<> value;
};

/// A call under way. The caller may have left, or died.
struct World::Asked {
  std::string call, by;
  bool of_cluster = false;
  Fate fate;
  Effect effect;
  std::weak_ptr<Reply> reply;
  int life = 0;
};

struct World::Life {
  explicit Life(World& world)
      : clusters(make_clusters(world)), devices(make_devices(world)), mounts(make_mounts(world)), filesystems(make_filesystems(world)),
        store(make_store(world)) {}
  std::unique_ptr<image::Clusters> clusters;
  std::unique_ptr<device::Devices> devices;
  std::unique_ptr<host::Mounts> mounts;
  std::unique_ptr<host::Filesystems> filesystems;
  std::unique_ptr<volume::RecordStore> store;
  // The shell goes first: its operations may still know the healer's scope.
  std::unique_ptr<heal::Healer> healer;
  std::unique_ptr<volume::Shell> shell;
};

World::World(Loop& loop) : loop_(loop) {}

World::~World() {
  if (life_) kill_agent();
}

volume::Shell& World::shell() { return *life_->shell; }

void World::broke(std::string rule) {
  trace("BROKEN " + rule);
  broken_rules.push_back(std::move(rule));
}

FakeImage* World::by_id(const std::string& image_id) {
  for (auto& [name, image] : images)
    if (image.id == image_id) return &image;
  return nullptr;
}

KernelDevice* World::by_index(std::uint32_t index) {
  for (auto& known : devices)
    if (known.index == index) return &known;
  return nullptr;
}

// --- Calls ----------------------------------------------------------------------------------------------------------------------------

Fate World::next_fate(const std::string& call) {
  ++calls;
  if (const auto happens = before_call) happens(call);
  Fate fate = hazards != nullptr ? hazards->fate(call) : Fate();
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

task<> World::die() {
  loop_.crash();
  Event never(loop_.control(), loop_.clock);
  co_await never.wait({});
}

task<result<>> World::ask_cluster(std::string call, std::string by, Until until, Effect effect) {
  const auto reply = std::make_shared<Reply>(loop_.control(), loop_.clock);
  const auto asked = std::make_shared<Asked>(Asked{call, std::move(by), true, next_fate(call), std::move(effect), reply, lives_});
  if (asked->fate.crash_before) co_await die();
  if (asked->fate.fail) co_return with_context(call, *asked->fate.fail);
  loop_.outside_in(asked->fate.before + cluster_slow, [this, asked] { perform(asked); });
  const Waited how = co_await reply->done.wait(until);
  if (how != Waited::ready) co_return wait_error(how, call);
  co_return reply->value;
}

task<result<>> World::ask_node(std::string call, Until until, Effect effect) {
  const auto reply = std::make_shared<Reply>(loop_.control(), loop_.clock);
  const auto asked = std::make_shared<Asked>(Asked{call, "", false, next_fate(call), std::move(effect), reply, lives_});
  if (asked->fate.crash_before) co_await die();
  if (asked->fate.fail) co_return with_context(call, *asked->fate.fail);
  in_syscall_.push_back(asked);
  loop_.outside_in(asked->fate.before, [this, asked] { perform(asked); });
  const Waited how = co_await reply->done.wait(until);
  if (how != Waited::ready) co_return wait_error(how, call);
  co_return reply->value;
}

/// A process ends with its syscalls: each comes to its end then, or was not begun.
void World::end_syscalls() {
  for (const auto& asked : std::exchange(in_syscall_, {}))
    if (hazards != nullptr && asked->fate.before < std::chrono::seconds(1) && hazards->any(duration(2)).count() == 0) {
      static_cast<void>(asked->effect());
      trace(asked->call + " (of a dead agent)");
    }
}

void World::perform(std::shared_ptr<Asked> asked) {
  const bool lives = life_ && asked->life == lives_;
  if (!asked->of_cluster) {
    if (!lives) return;
    std::erase(in_syscall_, asked);
    // Whoever wanted it has left before it was begun.
    if (asked->reply.expired()) return;
  }
  // The asker is dead: the message was out already, or it was not.
  if (!lives && (hazards == nullptr || hazards->any(duration(2)).count() == 0)) return;
  if (asked->of_cluster && cluster_dead) {
    held_.push_back([this, asked] { perform(asked); });
    return;
  }
  result<> value;
  if (asked->of_cluster && blocklisted.contains(asked->by)) {
    note_cut(asked->by);
    value = Error{errc::fenced, asked->call + ": the cluster has blocklisted this client"};
  } else {
    value = asked->effect();
    trace(asked->call + (lives ? "" : " (of a dead agent)") + (value ? "" : ": " + value.error().text));
  }
  if (lives && asked->fate.crash_after) return loop_.crash();
  if (asked->fate.fail_after) value = with_context(asked->call, *asked->fate.fail_after);
  deliver(asked, std::move(value));
}

void World::deliver(const std::shared_ptr<Asked>& asked, result<> value) {
  const auto tell = [asked, value = std::move(value)] {
    const auto reply = asked->reply.lock();
    if (!reply) return;
    reply->value = value;
    reply->done.set();
  };
  if (asked->fate.after == duration::zero()) return tell();
  loop_.outside_in(asked->fate.after, tell);
}

// --- Helpers --------------------------------------------------------------------------------------------------------------------------

struct World::HelperJob {
  std::shared_ptr<Asked> asked;
  std::optional<std::uint32_t> device;
  std::string busy_file;
  bool syncs = false;  ///< needs the device only for what that owes
  bool waits = false;
  bool gone = false;  ///< with its machine
};

task<result<>> World::ask_helper(std::string call, std::optional<std::uint32_t> device, std::string busy_file, Until until, Effect effect) {
  constexpr std::chrono::seconds patience{60};
  const auto reply = std::make_shared<Reply>(loop_.control(), loop_.clock);
  const auto asked = std::make_shared<Asked>(Asked{call, "", false, next_fate(call), std::move(effect), reply, lives_});
  if (asked->fate.crash_before) co_await die();
  if (asked->fate.fail) co_return with_context(call, *asked->fate.fail);
  const auto job = std::make_shared<HelperJob>(HelperJob{asked, device, std::move(busy_file), call == "unmount"});
  helpers_.push_back(job);
  loop_.outside_in(asked->fate.before, [this, job] { run_helper(job); });
  const bool patient = until.deadline > loop_.clock.now() + patience;
  const Waited how = co_await reply->done.wait(until.at_most(loop_.clock.now() + patience));
  if (how == Waited::deadline && patient) co_return Error{errc::unavailable, call + " is stuck: its helper was left behind"};
  if (how != Waited::ready) co_return wait_error(how, call);
  co_return reply->value;
}

void World::run_helper(const std::shared_ptr<HelperJob>& job) {
  if (job->gone) return;
  KernelDevice* device = job->device ? by_index(*job->device) : nullptr;
  if (device != nullptr && device->alive) {
    const auto link = links.find(device->link);
    const FakeOpened* image = link == links.end() ? nullptr : link->second->opened();
    // Its first request finds out.
    if (image != nullptr && !image->read_only())
      if (const FakeImage* of = by_id(device->image_id); of != nullptr && !may_write(*of, image->client())) link->second->hold();
  }
  if (device != nullptr && device->alive && job->syncs && !device->requests.empty()) {
    loop_.outside_in(std::chrono::milliseconds(1), [this, job] { run_helper(job); });
    return;
  }
  const bool needs_device = !job->syncs || (device != nullptr && !device->requests.empty());
  if (device != nullptr && !device->alive && needs_device && hazards != nullptr) {
    job->waits = true;
    trace(job->asked->call + " waits for " + device::path(device->index));
    return;
  }
  std::erase(helpers_, job);
  const auto& asked = job->asked;
  const bool lives = life_ && asked->life == lives_;
  result<> value = asked->effect();
  trace(asked->call + (lives ? "" : " (left by a dead agent)") + (value ? "" : ": " + value.error().text));
  if (lives && asked->fate.crash_after) return loop_.crash();
  if (asked->fate.fail_after) value = with_context(asked->call, *asked->fate.fail_after);
  deliver(asked, std::move(value));
}

void World::wake_helpers(std::uint32_t index) {
  for (const auto& job : helpers_) {
    if (!job->waits || job->device != index) continue;
    job->waits = false;
    loop_.outside_in(std::chrono::milliseconds(1), [this, job] { run_helper(job); });
  }
}

bool World::busy(const std::string& file) const {
  return std::any_of(helpers_.begin(), helpers_.end(), [&](const auto& job) { return job->busy_file == file; });
}

// --- Lives ----------------------------------------------------------------------------------------------------------------------------

void World::start_agent(bool with_healer) {
  ++lives_;
  fenced_once = false;
  client_.clear();
  connection();
  life_ = std::make_unique<Life>(*this);
  volume::Config config;
  config.boot_id = boot_id;
  config.policy.driver = "rbd.csi.ceph.com";
  config.policy.heal_without_proof = heal_without_proof;
  volume::Ports ports{*life_->clusters, *life_->devices, *life_->mounts, *life_->filesystems, *life_->store, find_cluster, any_path,
                      [this](const std::string& file) { return busy(file); }};
  life_->shell = std::make_unique<volume::Shell>(loop_.control(), loop_.clock, ports, config);
  if (with_healer) {
    heal::Config healing;
    healing.random_seed = static_cast<std::uint32_t>(lives_);
    life_->healer = std::make_unique<heal::Healer>(loop_.control(), loop_.clock, *life_->shell, healing);
    life_->shell->on_trouble([this](const std::string& id, std::string why) { life_->healer->heal(id, std::move(why)); });
  }
  const auto started = loop_.run(life_->shell->start());
  if (!started) throw std::runtime_error(started.error().text);
  if (life_->healer) life_->healer->start();
}

void World::kill_agent() {
  trace("the agent is gone");
  loop_.die();
  std::vector<int> ended;
  for (const auto& [serial, link] : links) ended.push_back(serial);
  auto gone = std::move(life_);
#ifdef NDEBUG
  gone.reset();
  if (loop_.clock.next() != time_point::max()) broke("a timer of the dead agent is left");
#else
  // An AsyncLock asserts that nobody waits for it, and a killed process does not tidy up: what was in its memory is kept, unused.
  static auto* graveyard = new std::vector<std::unique_ptr<Life>>();
  if (gone->healer) gone->healer.reset();
  graveyard->push_back(std::move(gone));
#endif
  loop_.renew();
  tell_dead = nullptr;
  links.clear();
  opened.clear();
  end_syscalls();
  for (const int link : ended) link_ended(link);
  std::set<std::string> dead;
  for (auto& [address, state] : clients)
    if (state == Client::live) {
      state = Client::dead;
      dead.insert(address);
    }
  expire_watches(std::move(dead));
}

void World::stop_agent() {
  const Until until{loop_.clock.now() + std::chrono::seconds(2)};
  if (life_->healer) loop_.run(life_->healer->stop());
  loop_.run(life_->shell->stop(until));
  kill_agent();
}

void World::reboot() {
  if (life_) kill_agent();
  trace("the machine boots");
  devices.clear();
  mounts.clear();
  keys.clear();
  for (const auto& job : helpers_) job->gone = true;
  helpers_.clear();
  boot_id += "'";
}

result<> World::want(const std::string& id, volume::Wish wish) {
  if (std::holds_alternative<volume::Failed>(wish)) given_up.insert(id);
  return loop_.run(shell().want(id, std::move(wish), {}));
}

volume::Staged staged_wish(const std::string& image) {
  volume::Staged wish;
  wish.path = "/kubelet/staging/" + image;
  wish.capability.fstype = "ext4";
  wish.source.cluster_id = "lab";
  wish.source.pool = "pool";
  wish.source.image = image;
  wish.user = "node";
  wish.key = Secret("canary-key");
  return wish;
}

}  // namespace corbd::test
