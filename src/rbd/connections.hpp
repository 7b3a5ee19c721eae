// The connections of this agent. Images with the same access share them. When each has Config::images_per_connection
// images, another one is made, up to Config::max_connections. One connection is one fencing domain: once the cluster
// has blocklisted it, all its images are dead, and it serves no new ones.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "choosing.hpp"
#include "cluster_threads.hpp"
#include "connection.hpp"
#include "corbd/rbd/clusters.hpp"
#include "earlier_agents.hpp"
#include "endings.hpp"
#include "fence.hpp"
#include "incarnation.hpp"
#include "renewal.hpp"

namespace corbd::rbd {

class Connections;

/// Keeps a connection for its user. Control thread.
class Lease {
 public:
  Lease() = default;
  Lease(Connections& owner, std::shared_ptr<Connection> connection);
  Lease(Lease&& other) noexcept : owner_(other.owner_), connection_(std::move(other.connection_)) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(connection_, other.connection_);
    return *this;
  }
  ~Lease();
  Connection* operator->() const { return connection_.get(); }
  const std::shared_ptr<Connection>& connection() const { return connection_; }

 private:
  Connections* owner_ = nullptr;
  std::shared_ptr<Connection> connection_;
};

/// Makes a client. Runs on a pool thread, for as long as the cluster takes.
using Dial = std::function<result<Connected>(const image::Access& access, Timeouts timeouts)>;

/// Control thread only.
class Connections {
 public:
  /// `files` is for the incarnation files. A cluster's calls have threads of their own.
  Connections(executor control, Clock& clock, BlockingPool& files, Config config, Dial dial = &connect);
  ~Connections();

  /// While the cluster has fenced this node, only Need::monitors gets a connection, and the others get node_fenced.
  using Need = rbd::Need;
  task<result<Lease>> lease(image::Access access, Need need, Until until);
  /// Writes the connection's file before an image is opened for writing, so that a later start fences it.
  task<result<>> record(const Lease& lease, Until until);
  /// Implements image::Clusters::record_prepared.
  task<> record_prepared(Until until);
  /// Implement image::Clusters::prepare and reload_predecessor_clients.
  task<result<>> prepare(image::Access access, std::size_t images, Until until);
  task<result<>> reload_predecessor_clients(bool ended);
  task<result<>> shutdown(Until until, Until users);
  /// Implements image::Clusters::cannot_fence.
  std::optional<std::string> cannot_fence(const image::Access& access) const;
  /// Implements image::Clusters::fsid_of.
  std::optional<std::string> fsid_of(const std::vector<std::string>& monitors) const;
  /// Asks a new client, which ends at once: its error, or the answer. Pool thread.
  using AskAnew = std::function<result<>(const std::function<result<>(Connection&)>& question)>;
  AskAnew asks_anew(image::Access access, image::Key key) const;
  /// Implements image::Clusters::may_serve_anew.
  task<result<>> may_serve_anew(image::Access access, image::Key key, bool writes);
  /// Implements image::Clusters::retire and retire_all.
  void retire(const image::Access& access);
  void retire_all(const image::Access& access);
  /// Notes whether a call had an answer before its caller left (Connection::silent, needs_another()). Without a call
  /// under way it was a thread that did not come, which says nothing.
  void note_answer(Connection& connection, bool answered);
  /// Retires a connection that gets no answers where a new client of its user gets them.
  void leave_deaf(std::shared_ptr<Connection> connection);
  /// Retires a connection that was denied a right. A client has the rights of the time when it connected, so the next
  /// caller gets a new one.
  void retire_denied(std::shared_ptr<Connection> connection);

  /// Drops connections that a cluster refuses, and tells their images.
  void drop_blocklisted();

  Fencing& fencing() { return fencing_; }
  const Endings& endings() const { return endings_; }
  const Incarnations& incarnations() const { return incarnations_; }
  Incarnations& incarnations() { return incarnations_; }
  /// Returns the connections to that cluster, whoever their user is.
  std::vector<std::shared_ptr<Connection>> of_cluster(const std::string& fsid) const;
  /// For calls that need no connection of their own.
  ClusterThreads& threads(const std::string& cluster_id) { return threads_.of(cluster_id); }
  Gate& gate() { return gate_; }
  /// Whether no operation that uses this is under way.
  bool quiet() const { return gate_.count() == 0 && endings_.count() == 0; }
  bool is_leaving() const { return leaving_; }
  /// Called when the process ends while a call that a dead cluster blocks still uses this. Clock and pools go first, so
  /// nothing of them is used any more.
  void abandon() { abandoned_ = true; }
  executor control() const { return control_; }
  Clock& clock() { return clock_; }
  const Config& config() const { return config_; }

 private:
  friend class Lease;
  std::shared_ptr<Group> group_for(const image::Access& access);
  std::vector<std::shared_ptr<Connection>> serving(const image::Access& access) const;
  void outdate_others(const Group& newer);
  Limits limits() const { return {config_.max_connections, config_.images_per_connection}; }
  void renew_threads(const std::string& cluster_id);
  void drop_node_fenced(Group& group);
  void begin_further(Group& group);
  void start_connecting(const std::shared_ptr<Group>& group);
  task<result<std::shared_ptr<Connection>>> await_connecting(std::shared_ptr<Group> group, Need need, Until until);
  task<> connect_one(std::shared_ptr<Group> group, std::shared_ptr<Attempt> attempt);
  task<result<>> connect_and_add(std::shared_ptr<Group> group);
  bool start_recording(const Lease& lease);
  task<> record_one(Lease lease, std::shared_ptr<Attempt> attempt);
  task<> refill_spares();
  std::vector<std::shared_ptr<Connection>> take_blocklisted();
  void leave(const std::shared_ptr<Connection>& connection);
  void retire_if_idle(std::shared_ptr<Connection> connection);
  void look_at_idle_later();
  void look_at_idle();

  executor control_;
  Clock& clock_;
  BlockingPool& files_;
  Config config_;
  Dial dial_;
  Gate gate_;  ///< everything under way, except for the endings
  Incarnations incarnations_;
  Endings endings_;
  Renewals renewals_;
  EarlierAgents earlier_;
  Fencing fencing_;
  ThreadsByCluster threads_;
  std::vector<std::shared_ptr<Group>> groups_;
  std::map<std::vector<std::string>, std::string> fsids_;  ///< by monitors, from the last connection
  Clock::TimerId idle_timer_ = 0;
  std::size_t leases_ = 0;
  std::shared_ptr<Event> no_lease_;  ///< awaited by a shutdown
  bool leaving_ = false, abandoned_ = false;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< checked by handlers that other threads post
};

}  // namespace corbd::rbd
