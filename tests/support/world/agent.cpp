// The lives of an agent.
#include <algorithm>

#include "corbd/heal/healer.hpp"
#include "support/world/node_reader.hpp"
#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

// The real devices have the same time.
constexpr std::chrono::seconds kInheritedFor{60};
/// Address of a monitor of another cluster.
constexpr const char* kStranger = "10.0.0.8";
/// Clients of one user: images do not fill one here, so the second and those that rbd::choose adds beyond its limit are
/// only made for want of an answer.
constexpr int kMostClients = 4;

class ClusterDirectory final : public volume::ClusterDirectory {
 public:
  explicit ClusterDirectory(World& world) : disk_(world.disk) {}
  result<volume::Cluster> find(const std::string& id) const override {
    if (disk_.config_malformed) return Error{errc::failed_precondition, "config.json is malformed"};
    const bool stranger = disk_.strangers.contains(id);
    if (!stranger && !disk_.clusters.contains(id)) return Error{errc::not_found, "no cluster " + id};
    volume::Cluster cluster{{stranger ? kStranger : "10.0.0.9"}, "", disk_.reads};
    if (!disk_.reads_unknown.empty()) cluster.reads = {};
    cluster.reads_unknown = disk_.reads_unknown;
    return cluster;
  }
  result<std::vector<image::Place>> mirrors_of(const image::Place&) const override { return disk_.mapped; }
  result<std::vector<std::string>> mirrors_of(const std::string&) const override {
    std::vector<std::string> ids;
    for (const auto& place : disk_.mapped) ids.push_back(place.cluster_id);
    return ids;
  }

 private:
  const Disk& disk_;
};

class NodeFiles final : public volume::NodeFiles {
 public:
  explicit NodeFiles(World& world) : world_(world) {}
  std::string real_path(std::string path) const override { return host::real_path(path, "/linked", "/kubelet"); }
  task<result<>> check_path(std::string path, bool must_exist) override {
    if (must_exist && world_.disk.missing_paths.contains(path)) co_return Error{errc::not_found, path + " is missing"};
    co_return result<>();
  }
  bool busy(const std::string& file) const override { return world_.calls.busy(file); }
  task<result<std::optional<cephcsi::Stash>>> read_stash(std::string path) override {
    return world_.disk.read_stash(world_, std::move(path));
  }
  task<result<>> write_stash(std::string path, cephcsi::Stash stash) override {
    return world_.disk.write_stash(world_, std::move(path), std::move(stash));
  }
  task<result<>> drop_stash(std::string path, std::string log) override {
    return world_.disk.drop_stash(world_, std::move(path), std::move(log));
  }

 private:
  World& world_;
};

class Orchestrator final : public volume::Orchestrator {
 public:
  explicit Orchestrator(World& world)
      : world_(world),
        nodes_(world.loop().control(), world.loop().clock, read_nodes(world.nodes), {}, repeatable_jitter(1)) {}
  task<plan::Attachment> attachment(std::string) override {
    using State = plan::Attachment::State;
    const bool knows = world_.attachment.state == State::here || world_.attachment.state == State::away;
    if (!world_.nodes.silent && knows && world_.agent.misnamed())
      co_return plan::Attachment{State::unknown, "", "it knows no node " + world_.agent.called(), true};
    if (!world_.nodes.silent) co_return world_.attachment;
    co_return plan::Attachment{plan::Attachment::State::unknown, "", kSilent, world_.nodes.strange};
  }
  task<plan::HolderNode> holder_node(plan::HolderQuery query) override {
    return nodes_.find(std::move(query), leaving_);
  }
  task<plan::StageSecret> stage_secret(std::string, std::string, volume::SecretAge) override {
    ++world_.secret_asked;
    if (world_.secret_takes > duration())
      co_await sleep_until(world_.loop().control(), world_.loop().clock,
                           world_.loop().clock.now() + world_.secret_takes);
    if (world_.nodes.silent) co_return plan::StageSecret{"", std::nullopt, kSilent};
    co_return world_.stage_secret;
  }

 private:
  static constexpr const char* kSilent = "the API server does not answer";
  World& world_;
  CancelScope leaving_;
  orchestrator::HolderNodes nodes_;
};

}  // namespace

struct Agent::Life final : volume::Listener {
  explicit Life(World& of)
      : world(of),
        clusters(make_clusters(world)),
        devices(make_devices(world)),
        kernel(make_kernel_client(world)),
        mounts(make_mounts(world)),
        filesystems(make_filesystems(world)),
        daemons(make_daemons(world)),
        luks(make_luks(world)),
        fscrypt(make_fscrypt(world)),
        kms(make_kms(world)),
        store(make_store(world)),
        directory(world),
        files(world),
        orchestrator(world) {}
  void notify(const std::string& id, const volume::Notice& notice) override { world.notices.push_back({id, notice}); }
  World& world;
  std::unique_ptr<image::Clusters> clusters;
  std::unique_ptr<device::Devices> devices;
  std::unique_ptr<device::KernelClient> kernel;
  std::unique_ptr<host::Mounts> mounts;
  std::unique_ptr<host::Filesystems> filesystems;
  std::unique_ptr<host::Daemons> daemons;
  std::unique_ptr<host::Luks> luks;
  std::unique_ptr<host::Fscrypt> fscrypt;
  std::unique_ptr<kms::Kms> kms;
  std::unique_ptr<volume::RecordStore> store;
  ClusterDirectory directory;
  NodeFiles files;
  Orchestrator orchestrator;
  // The shell goes first: its operations may still know the healer's scope.
  std::unique_ptr<heal::Healer> healer;
  std::unique_ptr<volume::Shell> shell;
};

Agent::Agent(World& world, Agent* first) : node(first != nullptr ? first->node : own_node_), world_(world) {}

Agent::~Agent() {
  if (running()) kill();
}

bool Agent::misnamed() const { return running() && called_ != world_.name; }

volume::Shell& Agent::shell() { return *life_->shell; }

void Agent::begin() {
  ++lives_;
  began_ = world_.loop().clock.now();
  fenced_once = leaving = ends_well_ = reads_again_ = false;
  leaves_by = {};
  client_.clear();
  connections_.clear();
  further_from_.clear();
  any_connection();
  life_ = std::make_unique<Life>(world_);
  volume::Config config;
  config.boot_id = world_.kernel.boot_id;
  config.trim_every = world_.trim_every;
  config.secrets_every = world_.secrets_every;
  config.policy.driver = "rbd.csi.ceph.com";
  called_ = node.other_name.empty() ? world_.name : node.other_name;
  config.policy.node = called_;
  config.filesystems = filesystems;
  config.policy.fencing = fencing;
  config.policy.fence_out_of_service = fence_out_of_service;
  const volume::Ports ports{.clusters = *life_->clusters,
                            .devices = *life_->devices,
                            .kernel = *life_->kernel,
                            .mounts = *life_->mounts,
                            .filesystems = *life_->filesystems,
                            .daemons = *life_->daemons,
                            .luks = *life_->luks,
                            .fscrypt = *life_->fscrypt,
                            .kms = *life_->kms,
                            .records = *life_->store,
                            .directory = life_->directory,
                            .files = life_->files,
                            .orchestrator = life_->orchestrator};
  life_->shell = std::make_unique<volume::Shell>(world_.loop().control(), world_.loop().clock, ports, config);
}

void Agent::start(bool with_healer) {
  if (const auto started = try_to_start(with_healer); !started) throw std::runtime_error(started.error().text);
}

result<> Agent::try_to_start(bool with_healer) {
  if (node.has_lock != nullptr) world_.broke("two agents have the lock of the state directory");
  if (const auto& frozen = world_.kernel.frozen; frozen && frozen->by != nullptr && !frozen->by->agent.running())
    world_.broke("an agent waits in the kernel and never ends, so nobody starts the next one, which would answer");
  node.has_lock = this;
  beside_ = false;
  node.cut.clear();
  node.left.clear();
  world_.kernel.key_derivations = 0;
  world_.disk.refused.clear();
  begin();
  // The listener gets the events that the records cause.
  if (with_healer) make_healer();
  auto started = world_.loop().run(life_->shell->start());
  if (!started) return started;
  if (life_->healer) life_->healer->start();
  if (!world_.kernel.inherited.empty()) let_go_later();
  return {};
}

void Agent::let_go_later() {
  world_.loop().outside_in(kInheritedFor, [this, life = lives_] {
    if (!lives(life)) return;
    if (world_.kernel.frozen) return let_go_later();
    let_go_of_inherited();
  });
}

void Agent::make_healer() {
  heal::Config healing;
  healing.jitter = repeatable_jitter(static_cast<std::uint64_t>(lives_));
  life_->healer = std::make_unique<heal::Healer>(world_.loop().control(), world_.loop().clock, *life_->shell, healing);
  life_->shell->set_listeners({life_.get(), life_->healer.get()});
}

void Agent::begin_beside() {
  beside_ = true;
  begin();
}

task<result<>> Agent::acquire_state(bool beside) {
  node.has_lock = this;
  return beside ? life_->shell->start_beside({}) : life_->shell->start();
}

result<> Agent::knows_before() {
  if (reads_again_) static_cast<void>(reload_predecessor_clients(true));
  if (reads_again_) return Error{errc::unavailable, "an incarnation cannot be read"};
  return {};
}

result<> Agent::reload_predecessor_clients(bool ended) {
  reads_again_ = ended && world_.disk.unreadable_incarnation;
  if (world_.disk.unreadable_incarnation) return Error{errc::unavailable, "an incarnation cannot be read"};
  const auto before = std::exchange(yields_, {});
  beside_ = !ended;
  for (const auto& address : before)
    if (ended && clients.at(address) == Client::fenced) handed_over_.insert(address);
  if (ended) return {};
  for (const auto& [address, state] : clients)
    if (state != Client::fenced && !own_clients_.contains(address) && node.recorded.contains(address))
      yields_.insert(address);
  return {};
}

void Agent::serve() {
  make_healer();
  life_->healer->start();
}

device::Devices& Agent::devices() { return *life_->devices; }

void Agent::let_go_of_inherited() {
  for (const auto& [index, given] : std::map(world_.kernel.inherited))
    if (given.of == &world_) world_.kernel.discard_inherited(index);
}

std::optional<duration> Agent::die() {
  const bool outlived = keeper && !std::exchange(keeper_goes_too, false);
  if (!outlived) {
    kill(true);
    return std::nullopt;
  }
  const auto left = [this](const auto& one) { return one.second.of == &world_ && one.second.of_keeper; };
  const bool served_well =
      world_.loop().clock.now() - began_ >= keeper::kServesWell && std::ranges::none_of(world_.kernel.inherited, left);
  const auto restart = policy_.died(world_.loop().clock.now(), served_well);
  kill();
  if (!restart.keeps_links) let_go_of_inherited();
  return restart.pause;
}

void Agent::keeper_dies() {
  policy_ = {};
  let_go_of_inherited();
}

void Agent::kill(bool with_keeper) {
  world_.trace(with_keeper && keeper ? "the agent and its keeper are gone" : "the agent is gone");
  const bool outlived = keeper && !with_keeper;
  if (!outlived) policy_ = {};
  std::vector<int> ended;
  std::erase_if(world_.kernel.inherited, [&](const auto& entry) {
    const InheritedLink& given = entry.second;
    const bool ends = given.of == &world_ && !(outlived && given.of_keeper);
    if (ends) ended.push_back(given.link);
    return ends;
  });
  auto mine = world_.kernel.links;
  std::erase_if(mine, [this](const auto& entry) { return &entry.second->process() != &world_; });
  for (const auto& [serial, link] : mine)
    if (outlived && link->kept())
      world_.kernel.inherited[*link->assigned] = {
          .link = serial, .of = &world_, .of_keeper = true, .owed = link->owed()};
    else
      ended.push_back(serial);
  // Drop it before its coroutines end: a killed process closes nothing.
  auto gone = std::move(life_);
  world_.loop().die();
#ifdef NDEBUG
  gone.reset();
  if (world_.loop().clock.next() != time_point::max()) world_.broke("a timer of the dead agent is left");
#else
  // An AsyncLock asserts that nobody waits for it, and a killed process does not clean up: its memory is kept, unused.
  static auto* graveyard = new std::vector<std::unique_ptr<Life>>();
  if (gone->healer) gone->healer.reset();
  graveyard->push_back(std::move(gone));
#endif
  world_.loop().renew();
  world_.kernel.tell_dead.erase(&world_);
  for (const auto& [serial, link] : mine) world_.kernel.links.erase(serial);
  std::erase_if(world_.cluster.opened, [this](const auto& one) { return &one.second->node() == &world_; });
  world_.calls.end();
  for (const int link : ended) world_.kernel.link_cut(link, ends_well_);
  std::set<std::string> dead;
  for (const auto& address : own_clients_)
    if (const auto place = clients.find(address); place != clients.end() && place->second == Client::live) {
      client_ended(address);
      dead.insert(address);
    }
  own_clients_.clear();
  retired_.clear();
  yields_.clear();
  handed_over_.clear();
  beside_ = false;
  if (node.resumed == this) node.resumed = nullptr;
  if (node.has_lock == this) node.has_lock = node.resumed;
  world_.cluster.expire_watches(std::move(dead));
}

task<> Agent::leave_well() {
  using Do = lifecycle::Leaving;
  auto life = serving_life({});
  advance(life, lifecycle::Signalled{world_.loop().clock.now()});
  advance(life, lifecycle::NodeSeen{false});
  auto action = advance(life, lifecycle::Woken{world_.loop().clock.now()});
  for (; const auto* leaves = std::get_if<lifecycle::LeavingAction>(&action); action = advance(life, lifecycle::Done{}))
    switch (leaves->what) {
      case Do::stop_new_work:
        co_await stop_new_work();
        break;
      case Do::stop_volumes:
        // Filesystems are thawed before that.
        leaving = std::ranges::none_of(world_.disk.records,
                                       [](const auto& record) { return record.source.serving.quiesce == true; });
        leaves_by = world_.loop().clock.now() + leaves->within;  // a request not answered in time has no answer
        co_await life_->shell->stop({leaves_by});
        break;
      case Do::end_callers:
      case Do::close_clients:
      case Do::unregister:
        break;  // not played here
    }
  ends_well_ = true;
}

void Agent::stop() {
  // An agent that ends by itself ends its keeper, or was told to end by that.
  keeper_goes_too = true;
  world_.loop().run(leave_well());
  kill(std::exchange(keeper_goes_too, false));
}

task<> Agent::stop_new_work() {
  co_await life_->devices->end_commands({world_.loop().clock.now() + std::chrono::minutes(5)});
  if (life_->healer) co_await life_->healer->stop();
}

task<result<>> Agent::quiesce() {
  node.resumed = nullptr;
  co_await stop_new_work();
  co_return co_await life_->shell->quiesce();
}

void Agent::resume() {
  node.has_lock = node.resumed = this;
  life_->shell->resume();
}

task<> Agent::hand_over_links(volume::Recipient recipient) {
  static_cast<void>(co_await life_->shell->hand_over(std::move(recipient)));
  ends_well_ = true;
  for (auto& [address, state] : clients) {
    if (!own_clients_.contains(address)) continue;
    const auto is_open = [&](const auto& one) {
      return &one.second->node() == &world_ && one.second->client() == address;
    };
    if (state != Client::live || std::ranges::any_of(world_.cluster.opened, is_open)) continue;
    state = Client::fenced;
    world_.cluster.ended.insert(address);
    world_.cluster.expire_watches({address});
  }
}

void Agent::hand_over(bool with_healer, bool next_lives) {
  try {
    // The world knows its link.
    if (world_.loop().run(quiesce()))
      world_.loop().run(
          hand_over_links([](device::LinkSocket) -> task<volume::Taken> { co_return volume::Taken::later; }));
  } catch (const Crash&) {
    if (!next_lives) throw;
  }
  auto given = std::exchange(world_.kernel.inherited, {});
  // The keeper of a dead agent restarts it. The next one has the lock by then, so the rest is dropped.
  std::set<std::string> handed_over;
  for (const auto& address : own_clients_)
    if (clients.at(address) == Client::fenced) handed_over.insert(address);
  kill(true);
  handed_over_ = std::move(handed_over);
  for (auto& [index, one] : given) one.taken = true;
  world_.kernel.inherited = std::move(given);
  start(with_healer);
}

result<> Agent::want(const std::string& id, plan::Wish wish) {
  if (std::holds_alternative<plan::GivenUp>(wish)) given_up.insert(id);
  return world_.loop().run(shell().want(id, std::move(wish), {}));
}

/// A new client reads the blocklist, and is closed again before it has done anything. A client that reaches nobody
/// waits.
const std::string& Agent::any_connection() {
  if (client_.empty() && (world_.network.is_cut() || !world_.cluster.fenced_hosts.contains(node_address))) {
    client_ = node_address + ":0/" + std::to_string(++node.clients_made);
    clients[client_] = Client::live;
    own_clients_.insert(client_);
  }
  return client_;
}

std::string Agent::connection(const image::Access& access) {
  const auto is_it = [&](const Connection& one) { return one.user == access.user && one.key == access.key; };
  const auto answers = [&](const Connection& one) { return is_it(one) && !one.unanswered; };
  auto known = std::ranges::find_if(connections_, answers);
  if (known == connections_.end()) known = std::ranges::find_if(connections_, is_it);
  const auto now = world_.loop().clock.now();
  const bool further = known != connections_.end() && known->unanswered && now >= further_from_[access.user] &&
                       std::ranges::count_if(connections_, is_it) < kMostClients &&
                       world_.cluster.knows(access.user, access.key);
  if (known != connections_.end() && !further) return client_ = known->client;
  if (further) further_from_[access.user] = now + std::chrono::minutes(1);
  if (!world_.cluster.knows(access.user, access.key)) return any_connection();
  if (std::ranges::find(connections_, client_, &Connection::client) != connections_.end()) client_.clear();
  if (any_connection().empty() && further) return client_ = known->client;
  if (!client_.empty()) connections_.push_back({access.user, access.key, client_});
  return client_;
}

std::set<std::string> Agent::connections() {
  std::set<std::string> all;
  for (const auto& one : connections_) all.insert(one.client);
  if (all.empty() && !any_connection().empty()) all.insert(client_);
  return all;
}

result<> Agent::admits(const std::string& client, const image::Access& access) const {
  if (auto admitted = admits_to_monitors(access); !admitted) return admitted;
  if (client.empty()) return Error{errc::node_fenced, "cluster lab has fenced this node"};
  return {};
}

result<> Agent::admits_to_monitors(const image::Access& access) const {
  if (access.monitors == std::vector<std::string>{kStranger})
    return Error{errc::unauthenticated, "cluster " + access.cluster_id + " knows no user " + access.user};
  return world_.cluster.knows(access.user, access.key);
}

result<> Agent::record(const std::string& client) {
  if (node.recorded.contains(client)) return {};
  if (!has_lock()) world_.broke("a client was noted for fencing by an agent that may write nothing yet");
  const auto state = world_.disk.state;
  if (state != Disk::State::good && (state == Disk::State::read_only || world_.disk.spares-- <= 0))
    return Error{errc::state_write, "writing the incarnation: the disk takes nothing"};
  node.recorded.insert(client);
  return {};
}

void Agent::client_ended(const std::string& client) {
  if (node.recorded.contains(client))
    clients.at(client) = Client::dead;
  else
    clients.erase(client);
}

void Agent::note_answer(const std::string& client, bool answered) {
  for (auto& one : connections_)
    if (one.client == client) one.unanswered = !answered;
}

/// The agent learnt that this client of its own is cut off: the next call uses another.
void Agent::note_cut(const std::string& address) {
  const auto place = clients.find(address);
  if (place != clients.end() && place->second == Client::live) client_ended(address);
  if (client_ == address) client_.clear();
  std::erase_if(connections_, [&](const Connection& one) { return one.client == address; });
  node.cut.insert(address);
}

void Agent::retire_all(const image::Access& access) {
  std::set<std::string> all;
  for (const auto& one : connections_)
    if (one.user == access.user && one.key == access.key) all.insert(one.client);
  std::erase_if(connections_, [&](const Connection& one) { return all.contains(one.client); });
  if (all.contains(client_)) client_.clear();
  retired_.insert(all.begin(), all.end());
  for (const auto& client : all) end_if_idle(client);
}

void Agent::end_if_idle(const std::string& client) {
  const auto place = clients.find(client);
  if (!retired_.contains(client) || place == clients.end() || place->second != Client::live) return;
  const auto is_its = [&](const auto& one) { return &one.second->node() == &world_ && one.second->client() == client; };
  if (std::ranges::any_of(world_.cluster.opened, is_its)) return;
  if (world_.network.is_cut() || world_.cluster.dead || world_.cluster.ticketless.contains(client)) return;
  place->second = Client::fenced;
  world_.cluster.ended.insert(client);
  world_.cluster.expire_watches({client});
}

lifecycle::State serving_life(const lifecycle::Settings& settings) {
  using lifecycle::Done;
  auto life = lifecycle::start_of(settings);
  advance(life, lifecycle::Begun{});
  for (auto action = advance(life, lifecycle::LinksGone{}); !is(action, lifecycle::Serving::wait);)
    action = advance(life, Done{is(action, lifecycle::Waiting::ask) ? errc::not_found : errc::ok});
  return life;
}

lifecycle::Action advance(lifecycle::State& life, const lifecycle::Event& event) {
  auto [state, action] = lifecycle::next(std::move(life), event);
  life = std::move(state);
  return action;
}

plan::Staged staged_wish(const std::string& image) {
  plan::Staged wish;
  wish.path = "/kubelet/staging/" + image;
  wish.capability.fstype = "ext4";
  wish.source.cluster_id = "lab";
  wish.source.pool = "pool";
  wish.source.image = image;
  wish.credential.user = "node";
  wish.credential.key = Secret("canary-key");
  return wish;
}

plan::Staged encrypted_wish(const std::string& image, const std::string& kms_id) {
  plan::Staged wish = staged_wish(image);
  wish.kms_id = kms_id;
  wish.encryption_type = "block";
  wish.passphrase = Secret("canary-passphrase");
  return wish;
}

}  // namespace corbd::test
