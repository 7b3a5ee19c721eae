// The admin socket, where people see the agent's volumes, follow their changes, and ask to heal a volume or to give it
// up (proto/corbd/v1/admin.proto).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "corbd/core/helper_pool.hpp"
#include "corbd/fence/fencer.hpp"
#include "corbd/heal/healer.hpp"
#include "corbd/ops/node_health.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/ports.hpp"

namespace corbd::v1 {
class Program;
}

namespace corbd::ops {

struct AdminConfig {
  std::string runtime_dir;  ///< the socket is <runtime_dir>/admin.sock, 0600
  std::string nodeid;
  void (*describe)(v1::Program& into) = nullptr;  ///< fills in what this program is; null: nothing
  std::string driver;                             ///< shows the devices of this driver, as far as their paths name it
  std::string pod;                                ///< UID of the agent's pod; empty: no pod
  std::size_t max_calls = 64;                     ///< calls in flight, including those that wait for events
};

/// The server's sources. They outlive the server, and are used only on the control thread.
struct AdminSources {
  volume::Volumes& volumes;
  heal::Healer& healer;
  std::function<std::vector<volume::Change>(const std::string& volume_id)> timeline;
  std::function<std::vector<HelperPool::Stuck>()> stuck_helpers;
  /// Calls Cordon::set, and volume::Shell::set_cordoned.
  std::function<task<result<>>(bool on, Until until)> set_cordoned;
  /// Returns all facts but those that this server knows itself: volumes, clusters, unclaimed devices, helpers.
  std::function<NodeFacts()> facts;
  fence::Fencer* fencer = nullptr;  ///< serves the service Fencing; null: there is none
  /// Receives an operator override (HealRequest.without_proof, loss_accepted), and how its try ended. `by`: "uid 0, pid
  /// 4711"; empty: unknown.
  std::function<void(const std::string& volume_id, const plan::Healed& word, const std::string& by,
                     const result<>& done)>
      on_override = [](const std::string&, const plan::Healed&, const std::string&, const result<>&) {};
  /// Calls orchestrator::Finder::left.
  std::function<std::map<std::string, std::string>()> left = [] { return std::map<std::string, std::string>(); };
};

/// The server of the admin socket. Control thread only; stop() before it is destroyed.
class Admin final : public volume::Listener {
 public:
  Admin(executor control, Clock& clock, AdminSources sources, AdminConfig config);
  ~Admin() override;

  /// in_use: another agent answers on the socket.
  result<> start();
  /// Returns the facts of `facts`, and those that this server adds, so that everybody judges by the same. `seen`: from
  /// `volumes`.
  NodeFacts facts(const volume::Overview& seen) const;
  /// Passes the change on to followers. Control thread, also before start().
  void changed(const volume::Change& change) override;
  /// Ends every wait of a caller at once, then the server.
  task<> stop(Until until);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::ops
