// The agent's lives.
#include "support/world.hpp"

#include <algorithm>

#include "corbd/heal/healer.hpp"
#include "support/world_ports.hpp"

namespace corbd::test {
namespace {

task<result<>> any_path(std::string, bool) { co_return result<>(); }

result<volume::Cluster> find_cluster(const World& world, const std::string& id) {
  if (!world.clusters.contains(id)) return Error{errc::not_found, "no cluster " + id};
  return volume::Cluster{{"10.0.0.9"}, "", world.crush_location};
}

}  // namespace

struct World::Life {
  explicit Life(World& world)
      : clusters(make_clusters(world)),
        devices(make_devices(world)),
        kernel(make_kernel_client(world)),
        mounts(make_mounts(world)),
        filesystems(make_filesystems(world)),
        daemons(make_daemons(world)),
        luks(make_luks(world)),
        kms(make_kms(world)),
        store(make_store(world)) {}
  std::unique_ptr<image::Clusters> clusters;
  std::unique_ptr<device::Devices> devices;
  std::unique_ptr<device::KernelClient> kernel;
  std::unique_ptr<host::Mounts> mounts;
  std::unique_ptr<host::Filesystems> filesystems;
  std::unique_ptr<host::Daemons> daemons;
  std::unique_ptr<host::Luks> luks;
  std::unique_ptr<kms::Kms> kms;
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

task<plan::Attachment> World::told(plan::Attachment attachment) { co_return attachment; }

void World::start_agent(bool with_healer) {
  ++lives_;
  fenced_once = leaving = false;
  key_derivations = 0;
  refused.clear();
  client_.clear();
  cut_.clear();
  connection();
  life_ = std::make_unique<Life>(*this);
  volume::Config config;
  config.boot_id = boot_id;
  config.policy.driver = "rbd.csi.ceph.com";
  config.policy.node = "node-1";
  config.policy.fencing = fencing;
  auto find = [this](const std::string& id) { return find_cluster(*this, id); };
  auto read_stash = [this](std::string path) { return stash_at(std::move(path)); };
  auto write_stash = [this](std::string path, cephcsi::Stash stash) {
    return leave_stash(std::move(path), std::move(stash));
  };
  auto drop_stash = [this](std::string path, std::string log) { return forget_stash(std::move(path), std::move(log)); };
  volume::Ports ports{*life_->clusters,
                      *life_->devices,
                      *life_->kernel,
                      *life_->mounts,
                      *life_->filesystems,
                      *life_->daemons,
                      *life_->luks,
                      *life_->kms,
                      *life_->store,
                      find,
                      any_path,
                      read_stash,
                      write_stash,
                      drop_stash,
                      [this](const std::string& file) { return busy(file); }};
  ports.real_path = [](const std::string& path) { return host::real_path(path, "/linked", "/kubelet"); };
  ports.attachment = [this](std::string) { return told(attachment); };
  ports.mapped_places = [this](const image::Place&) { return mapped; };
  ports.mapped_clusters = [this](const std::string&) {
    std::vector<std::string> ids;
    for (const auto& place : mapped) ids.push_back(place.cluster_id);
    return ids;
  };
  life_->shell = std::make_unique<volume::Shell>(loop_.control(), loop_.clock, ports, config);
  if (with_healer) {
    heal::Config healing;
    healing.jitter = repeatable_jitter(static_cast<std::uint64_t>(lives_));
    life_->healer = std::make_unique<heal::Healer>(loop_.control(), loop_.clock, *life_->shell, healing);
    life_->shell->on_trouble(
        [this](const std::string& id, std::string why) { life_->healer->heal(id, std::move(why)); });
  }
  const auto started = loop_.run(life_->shell->start());
  if (!started) throw std::runtime_error(started.error().text);
  if (life_->healer) life_->healer->start();
}

void World::kill_agent() {
  trace("the agent is gone");
  std::vector<int> ended;
  for (const auto& [serial, link] : links) ended.push_back(serial);
  // Before its coroutines end: what they hold is not closed, as it would be by somebody who lives.
  auto gone = std::move(life_);
  loop_.die();
#ifdef NDEBUG
  gone.reset();
  if (loop_.clock.next() != time_point::max()) broke("a timer of the dead agent is left");
#else
  // An AsyncLock asserts that nobody waits for it, and a killed process does not tidy up: what was in its memory is
  // kept, unused.
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

task<> World::leave_well() {
  co_await life_->devices->end_commands({loop_.clock.now() + std::chrono::minutes(5)});
  const Until until{loop_.clock.now() + std::chrono::seconds(2)};
  leaving = true;
  if (life_->healer) co_await life_->healer->stop();
  co_await life_->shell->stop(until);
  if (loop_.clock.now() >= until.deadline) co_return;  // what the cluster did not answer in time
  for (const auto& [serial, link] : links)
    if (link->state() == device::Link::State::serving && link->in_flight() > 0)
      broke("the agent left before its time was up, and a request that it had read has no answer");
}

void World::stop_agent() {
  loop_.run(leave_well());
  kill_agent();
}

void World::reboot() {
  if (life_) kill_agent();
  trace("the machine boots");
  expire_watches({kernel_client()});
  devices.clear();
  mounts.clear();
  keys.clear();
  for (const auto& job : helpers_) job->gone = true;
  helpers_.clear();
  boot_id += "'";
}

result<> World::want(const std::string& id, plan::Wish wish) {
  if (std::holds_alternative<plan::Failed>(wish)) given_up.insert(id);
  return loop_.run(shell().want(id, std::move(wish), {}));
}

plan::Staged staged_wish(const std::string& image) {
  plan::Staged wish;
  wish.path = "/kubelet/staging/" + image;
  wish.capability.fstype = "ext4";
  wish.source.cluster_id = "lab";
  wish.source.pool = "pool";
  wish.source.image = image;
  wish.user = "node";
  wish.key = Secret("canary-key");
  return wish;
}

plan::Staged encrypted_wish(const std::string& image, const std::string& kms_id) {
  plan::Staged wish = staged_wish(image);
  wish.kms_id = kms_id;
  wish.passphrase = Secret("canary-passphrase");
  return wish;
}

}  // namespace corbd::test
