#include "connections.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "corbd/core/log.hpp"
#include "header.hpp"
#include "locks.hpp"
#include "open_image.hpp"

namespace corbd::rbd {
namespace {

constexpr std::chrono::seconds kFencedStands{5};
constexpr std::chrono::milliseconds kLookAtShuts{10};
constexpr std::chrono::seconds kTriesFor{10};
// While all connections are silent: the least time between two new ones, and how long a caller waits for one.
constexpr std::chrono::seconds kFurtherAfter{60};
constexpr std::chrono::seconds kFurtherWithin{3};
// A connection costs 16 threads, 15 descriptors and 2.4 MB. A volume that moves to another pod comes back within this
// time.
constexpr std::chrono::minutes kLookAtIdle{1};

}  // namespace

Lease::Lease(Connections& owner, std::shared_ptr<Connection> connection)
    : owner_(&owner), connection_(std::move(connection)) {
  ++connection_->users;
  ++owner_->leases_;
}

Lease::~Lease() {
  if (connection_) owner_->leave(connection_);
}

Connections::Connections(executor control, Clock& clock, BlockingPool& files, Config config, Dial dial)
    : control_(control),
      clock_(clock),
      files_(files),
      config_(std::move(config)),
      dial_(std::move(dial)),
      gate_(control, clock),
      endings_(*this, incarnations_),
      renewals_(*this, files),
      earlier_(control, clock, files, gate_, config_, incarnations_, renewals_),
      fencing_(*this, files, incarnations_, earlier_, renewals_),
      threads_(control, clock) {
  earlier_.read_at_start();
}

Connections::~Connections() {
  clock_.cancel(idle_timer_);
  // A group and its connections refer to each other, so break the cycle.
  for (const auto& group : groups_) group->serving.clear();
}

std::shared_ptr<Group> Connections::group_for(const image::Access& access) {
  for (auto& group : groups_)
    if (group->access == access) return group;
  auto made = std::make_shared<Group>();
  made->access = access;
  look_at_idle_later();
  return groups_.emplace_back(std::move(made));
}

// Closes connections of a replaced key: idle ones now, the others with their last image. None goes before the new key
// has worked.
void Connections::outdate_others(const Group& newer) {
  for (auto& group : groups_) {
    const auto& access = group->access;
    if (group.get() == &newer || access.cluster_id != newer.access.cluster_id || access.user != newer.access.user ||
        access.config != newer.access.config)
      continue;
    group->outdated = true;
    for (const auto& connection : std::vector(group->serving)) retire_if_idle(connection);
  }
}

void Connections::renew_threads(const std::string& cluster_id) {
  if (!threads_.renew(cluster_id)) return;
  for (const auto& group : groups_)
    for (const auto& connection : group->serving)
      if (group->access.cluster_id == cluster_id && !connection->silent) connection->threads = &threads_.of(cluster_id);
}

void Connections::note_answer(Connection& connection, bool answered) {
  // Another call has the thread, perhaps of another connection.
  if (!answered && connection.under_way == 0) return;
  if (std::exchange(connection.silent, !answered) == !answered) return;
  if (answered)
    connection.threads = &threads_.of(connection.group->access.cluster_id);
  else
    log::warning("cluster.connection_silent",
                 {{"cluster", connection.group->access.cluster_id},
                  {"address", connection.addresses.front()},
                  {"effect", "new calls prefer another client of its user, and at most one is added a minute"}});
}

void Connections::leave_deaf(std::shared_ptr<Connection> connection) {
  if (std::exchange(connection->retired, true)) return;
  connection->silent = true;
  renew_threads(connection->group->access.cluster_id);
  retire_if_idle(std::move(connection));
}

std::optional<std::string> Connections::cannot_fence(const image::Access& access) const {
  for (const auto& group : groups_)
    if (group->access == access) return group->cannot_fence;
  return std::nullopt;
}

std::optional<std::string> Connections::fsid_of(const std::vector<std::string>& monitors) const {
  const auto place = fsids_.find(monitors);
  if (place == fsids_.end()) return std::nullopt;
  return place->second;
}

/// The client opens no image and leaves nothing behind, so no incarnation file names it. It serves no device, so it
/// need not wait for a placement group that is down.
Connections::AskAnew Connections::asks_anew(image::Access access, image::Key key) const {
  const Timeouts timeouts{.monitors = config_.mon_timeout, .osds = kTriesFor};
  return [dial = dial_, access = std::move(access), key = std::move(key), timeouts](const auto& question) -> result<> {
    auto made = dial(access, timeouts);
    if (!made) return made.error();
    Connection connection;
    connection.cluster = made->cluster;
    result<> answer;
    if (made->node_fenced) answer = *made->node_fenced;
    // Another cluster's "not found" proves nothing about the image.
    if (answer && made->fsid != key.fsid)
      answer = Error{errc::failed_precondition, cluster_text(access) + " has another fsid: " + made->fsid};
    if (answer) answer = question(connection);
    rados_shutdown(made->cluster);
    return answer;
  };
}

task<result<>> Connections::may_serve_anew(image::Access access, image::Key key, bool writes) {
  auto& trials = threads_.of(access.cluster_id).trials;
  auto may = [key, writes](Connection& connection) -> result<> {
    if (const auto seen = look_at_header(connection, key); !seen) return seen.error();
    return writes ? try_header_write(connection, key) : result<>();
  };
  auto job = [ask_anew = asks_anew(access, key), may = std::move(may)] { return ask_anew(may); };
  co_return co_await trials.call_to_end(gate_, std::move(job), "connecting anew to " + cluster_text(access));
}

std::vector<std::shared_ptr<Connection>> Connections::serving(const image::Access& access) const {
  for (const auto& group : groups_)
    if (group->access == access) return group->serving;
  return {};
}

std::vector<std::shared_ptr<Connection>> Connections::of_cluster(const std::string& fsid) const {
  std::vector<std::shared_ptr<Connection>> found;
  for (const auto& group : groups_)
    std::ranges::copy_if(group->serving, std::back_inserter(found), [&](const auto& one) { return one->fsid == fsid; });
  return found;
}

void Connections::retire(const image::Access& access) {
  for (const auto& connection : serving(access)) {
    if (connection->users > 0) continue;
    connection->retired = true;
    retire_if_idle(connection);
  }
}

void Connections::retire_all(const image::Access& access) {
  for (const auto& connection : serving(access)) {
    connection->retired = true;
    retire_if_idle(connection);
  }
}

void Connections::retire_denied(std::shared_ptr<Connection> connection) {
  const auto& serving = connection->group->serving;
  const auto retired = std::ranges::count_if(serving, [](const auto& one) { return one->retired; });
  if (connection->retired) return;
  // Some of its images may lack the right and others not: that is no reason to make ever more clients.
  if (!connection->images.empty() && static_cast<std::size_t>(retired) >= config_.max_connections) return;
  connection->retired = true;
  retire_if_idle(std::move(connection));
}

// Drops them so that the next caller connects anew, and notices the end of the fence.
void Connections::drop_node_fenced(Group& group) {
  for (const auto& connection : std::vector(group.serving)) {
    if (!connection->node_fenced) continue;
    std::erase(group.serving, connection);
    retire_if_idle(connection);
  }
}

task<result<Lease>> Connections::lease(image::Access access, Need need, Until until) {
  for (;;) {
    if (leaving_) co_return Error{errc::cancelled, "the agent is leaving: no new use of " + cluster_text(access)};
    // An empty connection may have gone while this waited.
    const auto held = group_for(access);
    Group& group = *held;
    group.outdated = false;
    drop_blocklisted();
    const bool further = needs_another(group, need, limits(), clock_.now());
    auto found = further ? nullptr : choose(group, need, limits());
    if (found) co_return Lease(*this, std::move(found));
    if (need != Need::monitors && group.node_fenced && clock_.now() < group.node_fenced->second)
      co_return group.node_fenced->first;
    if (need != Need::monitors) drop_node_fenced(group);
    if (further && !group.connecting) begin_further(group);
    start_connecting(held);
    auto connected = co_await await_connecting(held, need, until);
    if (!connected) co_return connected.error();
    if (*connected) co_return Lease(*this, std::move(*connected));
  }
}

void Connections::begin_further(Group& group) {
  group.further_from = clock_.now() + kFurtherAfter;
  renew_threads(group.access.cluster_id);
}

/// Null: the caller is to choose again. A connection: the attempt led to nothing in time, and the caller gets one that
/// does not answer.
task<result<std::shared_ptr<Connection>>> Connections::await_connecting(std::shared_ptr<Group> held, Need need,
                                                                        Until until) {
  Group& group = *held;
  const auto attempt = group.connecting;
  const bool has_other = std::ranges::any_of(group.serving, [](const auto& one) { return one->silent; });
  const Until limit = has_other ? until.at_most(clock_.now() + kFurtherWithin) : until;
  const Waited how = co_await attempt->done.wait(limit);
  if (how == Waited::cancelled) co_return wait_error(how, "the connection to " + cluster_text(group.access));
  const bool failed = how == Waited::ready && attempt->failed;
  auto other = how == Waited::deadline || failed ? choose(group, need, limits()) : nullptr;
  if (other) co_return other;
  if (how == Waited::deadline)
    co_return Error{errc::unavailable, cluster_text(group.access) +
                                           " has not answered in time: check the monitors' addresses and the network"};
  if (failed) co_return *attempt->failed;
  if (need != Need::monitors && attempt->node_fenced) co_return *attempt->node_fenced;
  co_return nullptr;
}

void Connections::start_connecting(const std::shared_ptr<Group>& group) {
  if (group->connecting) return;
  group->connecting = std::make_shared<Attempt>(control_, clock_);
  if (!gate_.spawn(connect_one(group, group->connecting))) {
    group->connecting->failed = Error{errc::cancelled, "the agent is leaving"};
    group->connecting->done.set();
  }
}

task<> Connections::connect_one(std::shared_ptr<Group> held, std::shared_ptr<Attempt> attempt) {
  Group& group = *held;
  auto made = co_await connect_and_add(held);
  if (!made) attempt->failed = made.error();
  group.node_fenced.reset();
  for (const auto& connection : group.serving)
    if (made && connection->node_fenced) attempt->node_fenced = connection->node_fenced;
  if (attempt->node_fenced) group.node_fenced = {*attempt->node_fenced, clock_.now() + kFencedStands};
  group.connecting.reset();
  attempt->done.set();
}

task<result<>> Connections::connect_and_add(std::shared_ptr<Group> group) {
  const auto began = fencing_.last();
  auto job = [dial = dial_, access = group->access, timeout = config_.mon_timeout] {
    return dial(access, {.monitors = timeout});
  };
  ClusterThreads& threads = threads_.of(group->access.cluster_id);
  auto made =
      co_await threads.cluster.call_to_end(gate_, std::move(job), "connecting to " + cluster_text(group->access));
  if (!made) co_return made.error();
  fsids_.insert_or_assign(group->access.monitors, made->fsid);
  const auto connection = std::make_shared<Connection>();
  connection->cluster = made->cluster;
  connection->fsid = made->fsid;
  connection->uuid = make_uuid();
  connection->addresses = made->addresses;
  connection->group = group;
  connection->threads = &threads_.of(group->access.cluster_id);
  threads_.note_connection(connection);
  connection->node_fenced = made->node_fenced;
  connection->map_after = began;
  connection->on_blocklisted = [this, control = control_, alive = std::weak_ptr<char>(alive_)] {
    asio::post(control, [this, alive] {
      if (!alive.expired()) drop_blocklisted();
    });
  };
  incarnations_.add(
      {Incarnation::State::live, connection->uuid, made->fsid, group->access.cluster_id, made->addresses});
  group->serving.push_back(connection);
  if (std::exchange(group->cannot_fence, made->cannot_fence) != made->cannot_fence && made->cannot_fence)
    log::warning("cluster.cannot_fence", {{"cluster", group->access.cluster_id}, {"cause", *made->cannot_fence}});
  outdate_others(*group);
  renewals_.look_again();
  log::info("cluster.connected", {{"cluster", group->access.cluster_id},
                                  {"fsid", connection->fsid},
                                  {"user", group->access.user},
                                  {"address", connection->addresses.front()},
                                  {"connections", group->serving.size()}});
  co_return result<>();
}

// I5: the addresses are durable before an image is opened for writing through the connection. Until then it can leave
// nothing behind, and a later agent need not know of it.
task<result<>> Connections::record(const Lease& lease, Until until) {
  if (lease->recorded && !lease->recording) co_return result<>();
  if (!start_recording(lease)) co_return Error{errc::cancelled, "the agent is leaving"};
  const auto attempt = lease->recording;
  const Waited how = co_await attempt->done.wait(until);
  if (how != Waited::ready) co_return wait_error(how, "the addresses of a Ceph client to be written");
  if (attempt->failed) co_return *attempt->failed;
  co_return result<>();
}

/// Returns false if the agent is leaving.
bool Connections::start_recording(const Lease& lease) {
  if (lease->recording || lease->recorded) return true;
  lease->recording = std::make_shared<Attempt>(control_, clock_);
  const bool started = gate_.spawn(record_one(Lease(*this, lease.connection()), lease->recording));
  if (!started) lease->recording.reset();
  return started;
}

/// Writes all files at once. A file that cannot be written is tried again, and reported, when an image is opened.
task<> Connections::record_prepared(Until until) {
  std::vector<Lease> all;
  for (const auto& group : groups_)
    for (const auto& connection : group->serving)
      if (!connection->node_fenced) all.emplace_back(*this, connection);
  for (const auto& one : all) static_cast<void>(start_recording(one));
  for (const auto& one : all) static_cast<void>(co_await record(one, until));
}

task<> Connections::record_one(Lease lease, std::shared_ptr<Attempt> attempt) {
  lease->recorded = true;
  const Incarnation incarnation{Incarnation::State::live, lease->uuid, lease->fsid, lease->group->access.cluster_id,
                                lease->addresses};
  // The agent that serves beside this one uses the spare files.
  auto save = [dir = config_.incarnations_dir, incarnation, spares = !config_.predecessor_running] {
    return save_incarnation(dir, incarnation, spares);
  };
  auto saved = co_await files_.run(std::move(save), {}, "writing the incarnation");
  if (!saved) attempt->failed = saved.error();
  lease->recorded = saved.has_value();
  lease->recording.reset();
  attempt->done.set();
  if (saved && !config_.predecessor_running) co_await refill_spares();
}

task<> Connections::refill_spares() {
  auto job = [dir = config_.incarnations_dir]() -> result<> {
    keep_spares(dir);
    return {};
  };
  static_cast<void>(co_await files_.run(std::move(job), {}, "keeping spare files"));
}

void Connections::leave(const std::shared_ptr<Connection>& connection) {
  --connection->users;
  --leases_;
  if (abandoned_) return;
  drop_blocklisted();
  retire_if_idle(connection);
  if (leases_ == 0 && no_lease_) no_lease_->set();
}

std::vector<std::shared_ptr<Connection>> Connections::take_blocklisted() {
  std::vector<std::shared_ptr<Connection>> taken;
  for (auto& group : groups_)
    for (const auto& connection : std::vector(group->serving)) {
      if (!connection->blocklisted.load(std::memory_order_relaxed)) continue;
      std::erase(group->serving, connection);
      endings_.drop(connection);
      log::warning("cluster.blocklisted", {{"cluster", group->access.cluster_id},
                                           {"address", connection->addresses.front()},
                                           {"images", connection->users}});
      taken.push_back(connection);
    }
  return taken;
}

// An image that is told may immediately ask for another connection, and may close images. So do not iterate over
// anything that this changes.
void Connections::drop_blocklisted() {
  for (const auto& connection : take_blocklisted()) {
    for (OpenImage* image : std::set(connection->images))
      if (connection->images.contains(image)) image->mark_access_lost("the cluster has blocklisted its client");
    retire_if_idle(connection);
  }
}

// One idle connection stays for the access's next image (look_at_idle), and all of them while images are on their way.
// None stays when we leave, or when the key was replaced.
void Connections::retire_if_idle(std::shared_ptr<Connection> connection) {
  if (connection->users > 0 || connection->cluster == nullptr) return;
  connection->idle_since = clock_.now();
  const bool better = has_better(*connection->group, *connection);
  const bool spare = !connection->dropped && !connection->retired && !connection->node_fenced && !leaving_ &&
                     !connection->group->outdated && (!better || config_.predecessor_running);
  if (spare) return look_at_idle_later();
  std::erase(connection->group->serving, connection);
  endings_.shut(std::move(connection));
}

void Connections::look_at_idle_later() {
  if (idle_timer_ != 0 || leaving_) return;
  idle_timer_ = clock_.schedule(clock_.now() + kLookAtIdle, [this] {
    idle_timer_ = 0;
    look_at_idle();
  });
}

void Connections::look_at_idle() {
  if (leaving_) return;
  // The predecessor's images will want them.
  if (config_.predecessor_running) return look_at_idle_later();
  const auto idle = judge_idle(groups_, clock_.now());
  for (const auto& connection : idle.end) {
    std::erase(connection->group->serving, connection);
    endings_.shut(connection);
  }
  std::erase_if(groups_,
                [](const auto& group) { return group->serving.empty() && !group->connecting && !group->fencing; });
  if (idle.end_later || std::ranges::any_of(groups_, [](const auto& group) { return group->serving.empty(); }))
    look_at_idle_later();
}

task<result<>> Connections::prepare(image::Access access, std::size_t images, Until until) {
  std::vector<Lease> held;
  while (held.size() < images) {
    auto lease_of_one = co_await lease(access, Need::room_for_image, until);
    if (!lease_of_one) co_return lease_of_one.error();
    held.push_back(std::move(*lease_of_one));
  }
  co_return result<>();
}

task<result<>> Connections::reload_predecessor_clients(bool ended) {
  if (ended) config_.predecessor_running = false;
  // An agent that runs beside a living predecessor had better leave the images to it.
  auto known = co_await earlier_.read(ended);
  if (!ended) co_return known;
  for (auto& group : groups_)
    for (const auto& connection : std::vector(group->serving)) retire_if_idle(connection);
  co_return known;
}

task<result<>> Connections::shutdown(Until until, Until users) {
  leaving_ = true;
  renewals_.stop();
  earlier_.stop();
  for (auto& group : groups_)
    for (const auto& connection : std::vector(group->serving)) retire_if_idle(connection);
  // Calls whose callers have left end by themselves. The owners close the images.
  if (leases_ > 0) {
    no_lease_ = std::make_shared<Event>(control_, clock_);
    const auto waits_for = no_lease_;
    const bool left = co_await waits_for->wait(users) == Waited::ready;
    while (!left && endings_.count() > 0 && clock_.now() < until.deadline)
      static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + kLookAtShuts, until.scope));
    if (!left)
      co_return Error{errc::busy,
                      std::to_string(leases_) +
                          " images or calls still use connections, which stay open: the next start fences them"};
  }
  Waited how = co_await endings_.close(until);
  if (how == Waited::ready) how = co_await gate_.close(until);
  if (how != Waited::ready) co_return wait_error(how, "the connections to close");
  co_return result<>();
}

}  // namespace corbd::rbd
