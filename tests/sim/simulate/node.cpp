#include "node.hpp"

#include <algorithm>
#include <cstdio>

namespace corbd::sim {
namespace {

using namespace std::chrono_literals;
using plan::Wish;

constexpr std::chrono::minutes kServedWithin{10};

}  // namespace

test::FakeImage& make_image(test::Cluster& cluster, const Volume& volume) {
  test::FakeImage& image = cluster.images[volume.image];
  image.id = "id-of-" + volume.image;
  image.exclusive = volume.exclusive;
  if (volume.filled) {
    image.data = true;
    image.content = host::Probe::Kind::filesystem;
    image.fstype = "ext4";
  }
  // Somebody's data without a filesystem.
  if (volume.raw || volume.begun) image.data = true;
  if (volume.begun) image.metadata["corbd/format"] = "mkfs by 10.0.0.3:0/1";
  image.encrypts = volume.filled && volume.files;
  // An earlier stage made the folder.
  if (image.encrypts && volume.read_only) {
    const bool is_kept = volume.kms == "kept" || volume.kms == "plain";
    image.folder = test::FakeFolder{is_kept ? "a first key" : "canary-passphrase", volume.kms == "own"};
    if (is_kept) cluster.kept_keys[volume.image] = {"a first key"};
  }
  if (!volume.kms.empty() && !volume.files) cluster.provision_encrypted(volume.image, volume.kms);
  if (volume.integrity && image.luks) {
    image.luks->integrity = true;
    image.filesystem_bytes -= test::kLuksTags;
  }
  return image;
}

Node::Node(const History& history, bool trace)
    : history_(history), trace_(trace), random_(history.seed * 2 + 1), start_(loop_.clock.now()) {
  world_.hazards = this;
  world_.cluster.monitors_ahead = monitors_ahead(history);
  loop_.stand_beside(beside_loop_);
  for (test::World* process : {&world_, &beside_}) {
    process->agent.fence_out_of_service = history.fence_out_of_service;
    process->agent.keeper = history.keepers != 0;
    process->agent.compares_names = history.seed % 4 != 0;
    process->trim_every = trim_every(history);
  }
  // As rbd-nbd leaves them that had mapped something read-only.
  if (history.seed % 3 == 0) world_.kernel.read_only_numbers = {0, 1, 3};
  if (history.orchestrated) world_.attachment = {plan::Attachment::State::here, "uid-1", ""};
  slow_death_until_ = untold_until_ = disk_full_until_ = slow_until_ = dead_until_ = start_;
  for (const auto& volume : history.volumes) {
    Kubelet kubelet;
    kubelet.volume = volume;
    test::FakeImage& image = make_image(world_.cluster, volume);
    // rbd-nbd caches on a device that sends flushes. In some histories ours does not.
    image.caches_before_flush = history.caches && history.seed % 4 != 0;
    kubelet.image_id = image.id;
    kubelets_.push_back(kubelet);
  }
}

void Node::trace(const std::string& event) {
  if (!trace_) return;
  const auto ms = std::chrono::duration_cast<std::chrono::microseconds>(loop_.clock.now() - start_).count();
  std::printf("%10.3f ms  %s\n", static_cast<double>(ms) / 1000, event.c_str());
}

duration Node::any(duration limit) {
  return duration(
      static_cast<duration::rep>(random_() % static_cast<std::uint64_t>(std::max<duration::rep>(limit.count(), 1))));
}

Outcome Node::live() {
  start_agent();
  schedule_faults();
  for (std::size_t i = 0; i < kubelets_.size(); ++i) {
    kubelet_looks(i);
    application_works(i);
  }
  snapshotter_comes();
  go_until(start_ + history_.length);
  stop_faults();
  end_freeze();
  converge();
  wait_for_agents();
  look_at_frozen();
  stage_what_the_dead_left();
  the_dead_return();
  take_down();
  // Images of volumes that were given up are closed when they can be.
  for (const auto end = loop_.clock.now() + 2min;
       world_.cluster.has_open_images() && loop_.clock.now() < end && world_.broken_rules.empty();)
    step(end);
  look_at_what_is_left();
  if (agent().running()) agent().stop();
  return {world_.broken_rules, static_cast<std::uint64_t>(world_.calls.made + beside_.calls.made),
          world_.kernel.answered, world_.kernel.losses_told};
}

void Node::step(time_point end) {
  loop_.step(end);
  lifecycle();
  look_at_rules();
}

void Node::go_until(time_point end) {
  while (loop_.clock.now() < end && world_.broken_rules.empty()) step(end);
}

/// Lives end and begin here only, outside of everything else.
void Node::lifecycle() {
  if (suspended_for_) {
    const auto slept = *std::exchange(suspended_for_, std::nullopt);
    trace("the machine sleeps for " + std::to_string(slept.count()) + " ms");
    loop_.leap(slept);
  }
  // What docs/devices.md#growing says remains: the link of a device ends while its resize waits.
  if (world_.kernel.stands() && !reboots_) {
    trace("nbd of the node stands until it boots");
    reboots_ = agent().keeper_goes_too = true;
    if (!down_for_) down_for_ = 1s;
  }
  if (processes_.handover() != nullptr && !reboots_) {
    look_at_handover();
    if (processes_.handover() != nullptr || agent().running()) return;
  } else if (std::exchange(hands_over_, false) && processes_.handover() == nullptr && agent().running() &&
             !processes_.serving().loop().crashed() && !leaves_well_ && !reboots_) {
    return hand_over();
  } else if (leaves_well_ && agent().running() && !processes_.serving().loop().crashed()) {
    trace("the agent is told to leave");
    try {
      agent().stop();
    } catch (const test::Crash&) {
      agent_dies();
    }
  } else if (agent().running() && (processes_.serving().loop().crashed() || reboots_)) {
    // Or it began in the moment in which the machine boots.
    agent_dies();
  }
  leaves_well_ = false;
  if (agent().running()) return;
  if (std::exchange(reboots_, false)) {
    processes_.end();
    world_.reboot();
    for (auto& kubelet : kubelets_) kubelet.staged = kubelet.published = false;
  }
  for (auto& kubelet : kubelets_) kubelet.asking = false;
  overridden_.clear();
  if (!down_for_) return;
  const auto back_in = *std::exchange(down_for_, std::nullopt);
  loop_.outside_in(back_in + 100ms, [this] { start_agent(); });
}

/// Its keeper starts the next one, unless that is gone too.
void Node::agent_dies() {
  if (const auto by_keeper = agent().die()) down_for_ = std::chrono::ceil<Millis>(*by_keeper + any(20ms));
}

void Node::start_agent() {
  if (agent().running() || processes_.handover() != nullptr) return;
  trace("an agent starts");
  const auto started = agent().try_to_start(true);
  if (started) return;
  trace("it ends at once: " + started.error().text);
  agent_dies();
  if (const auto back_in = std::exchange(down_for_, std::nullopt).value_or(1s); !faults_over_)
    loop_.outside_in(back_in, [this] { start_agent(); });
}

result<> Node::want(const std::string& id, const Wish& wish) {
  trace(std::string(plan::name(wish)) + " of " + id);
  if (std::holds_alternative<plan::GivenUp>(wish)) agent().given_up.insert(id);
  start_agent();
  // One agent ends, and the next does not serve yet.
  if (!agent().running()) return Error{errc::unavailable, "nobody serves"};
  result<> done;
  try {
    done = processes_.serving().loop().run(agent().shell().want(id, wish, {loop_.clock.now() + 2min}));
  } catch (const test::Crash&) {
    // A blow that was under way when the faults ended.
    lifecycle();
    start_agent();
    done = Error{errc::unavailable, "the agent died"};
  }
  trace(std::string(plan::name(wish)) + " of " + id + (done ? " done" : ": " + done.error().text));
  look_at_rules();
  return done;
}

/// A resize of an agent that died may wait for requests of a volume that nobody proves to be ours. All other volumes'
/// commands wait for that too, so an operator gives the volume up.
void Node::end_freeze() {
  const auto end = loop_.clock.now() + 3min;
  while (world_.kernel.frozen && loop_.clock.now() < end && world_.broken_rules.empty()) step(end);
  for (const auto& kubelet : kubelets_) {
    const auto* device = device_of(kubelet.volume.image);
    if (!world_.kernel.frozen || device == nullptr || device->index != world_.kernel.frozen->device) continue;
    if (provably_ours(kubelet)) world_.broke("a resize waits for a volume that is provably ours: " + device->backend);
    static_cast<void>(want(kubelet.volume.image, plan::GivenUp{}));
  }
}

/// Liveness: once nothing goes wrong any more, what is ours is served, and answers.
void Node::converge() {
  std::vector<const Kubelet*> ours;
  for (const auto& kubelet : kubelets_)
    if (provably_ours(kubelet)) ours.push_back(&kubelet);
  const auto waits = [&](const Kubelet* kubelet) { return provably_ours(*kubelet) && !served(*kubelet); };
  const auto end = loop_.clock.now() + kServedWithin;
  while (loop_.clock.now() < end && world_.broken_rules.empty() && std::any_of(ours.begin(), ours.end(), waits))
    step(end);
  for (const Kubelet* kubelet : ours) {
    if (!waits(kubelet)) continue;
    const auto status =
        agent().running() ? agent().shell().status(kubelet->volume.image) : std::optional<volume::Status>();
    world_.broke("a volume that is provably ours is not served after 10 min without faults: " + kubelet->volume.image +
                 (status && status->last_error ? ": " + status->last_error->text : ""));
  }
  go_until(loop_.clock.now() + 30s);
  const auto stuck = [&](const Kubelet* kubelet) {
    const auto* device = device_of(kubelet->volume.image);
    return device != nullptr && served(*kubelet) && !device->requests.empty();
  };
  // One may have become provable, and served, a moment ago. A client without tickets is replaced once a request has
  // waited for a minute.
  const auto answered_by = loop_.clock.now() + 3min;
  while (loop_.clock.now() < answered_by && world_.broken_rules.empty() && std::any_of(ours.begin(), ours.end(), stuck))
    step(answered_by);
  for (const Kubelet* kubelet : ours) {
    if (stuck(kubelet)) world_.broke("a request waits for ever on a device that is served: " + kubelet->volume.image);
  }
}

/// What this node does not serve it keeps from nobody. (What it unstages, when kubelet repeats that.)
void Node::wait_for_agents() {
  using volume::Health;
  const auto leave = [&] {
    for (const auto& [agent, name] : waiting_)
      if (const auto image = world_.cluster.images.find(name);
          image != world_.cluster.images.end() && world_.cluster.other_agents.contains(agent))
        world_.cluster.leave(image->second, agent, true);
  };
  for (const auto& [agent, name] : waiting_) {
    const auto kubelet = std::ranges::find(kubelets_, name, [](const Kubelet& one) { return one.volume.image; });
    const auto kept = [&] {
      if (served(*kubelet)) return false;
      const auto status = processes_.serving().agent.shell().status(name);
      const auto health = status ? status->health : Health::lost;
      const bool left =
          health == Health::unproven || health == Health::lost || health == Health::failed || health == Health::staging;
      return left && world_.cluster.images.contains(name) && !world_.cluster.other_agents.contains(agent);
    };
    leave();
    for (const auto end = loop_.clock.now() + 10min; kept() && loop_.clock.now() < end && world_.broken_rules.empty();
         leave())
      step(end);
    if (kept() && world_.broken_rules.empty())
      world_.broke("another node's agent waits for ever for an image that is not served here: " + name);
  }
  leave();
}

void Node::take_down() {
  for (const auto& kubelet : kubelets_) {
    const std::string& id = kubelet.volume.image;
    const std::array<Wish, 2> wishes{plan::Unpublished{publish_wish(kubelet.volume).target},
                                     plan::Unstaged{stage_wish(kubelet.volume).path}};
    for (const auto& wish : wishes) {
      result<> done = Error{errc::internal, "not asked"};
      for (int tries = 0; tries < 30 && !done && world_.broken_rules.empty(); ++tries) {
        if (!kubelet.volume.block || !owes(id)) done = want(id, wish);
        if (done) break;
        // Nobody but the next stage knows a volume whose record was gone: somebody restarts kubelet.
        if (tries >= 2 && device_of(id) != nullptr && changes_.damaged(id))
          static_cast<void>(want(id, changes_.staged(stage_wish(kubelet.volume))));
        // What is not provably ours is given up by hand after a while.
        if (tries >= 6) static_cast<void>(want(id, plan::GivenUp{}));
        go_until(loop_.clock.now() + 30s);
      }
      if (!done && world_.broken_rules.empty()) world_.broke(id + " cannot be taken down: " + done.error().text);
    }
  }
}

test::KernelDevice* Node::device_of(const std::string& id) {
  for (auto& device : world_.kernel.devices)
    if (device.backend == id) return &device;
  return nullptr;
}

Outcome run(const History& history, bool trace) {
  try {
    if (history.nodes == 2) return run_two(history, trace);
    return Node(history, trace).live();
  } catch (const std::exception& failed) {
    return {{std::string("the history did not end: ") + failed.what()}};
  }
}

}  // namespace corbd::sim
