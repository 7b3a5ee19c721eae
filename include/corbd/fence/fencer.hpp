// Carries out fencing requests on a cluster's blocklist. Each call either did everything, or its error lists what is
// done and what is not; a repeat finishes it.
#pragma once

#include <functional>

#include "corbd/fence/fence.hpp"
#include "corbd/fence/self_check.hpp"
#include "corbd/image/image.hpp"

namespace corbd::fence {

/// The cluster, and the user who asks.
struct Asker {
  std::string cluster_id;  ///< as in config.json
  std::string user;        ///< Ceph's, without "client."
  Secret key;
};

struct Order {
  std::vector<std::string> blocks;  ///< in CIDR notation
  std::chrono::seconds duration = kLasting;
  bool forced = false;   ///< allows blocks that have a client of this agent
  bool dry_run = false;  ///< changes nothing
};

/// The changes that were made, or would be.
struct Report {
  std::vector<BlocklistEntry> changed;
  std::vector<AddressBlock> blocks;  ///< blocks of the order, as parsed
  Blocklist before;
  std::vector<BlocklistEntry> remain = {};  ///< after an unfencing: entries that keep some of the addresses fenced
};

/// Result of a node's self-check.
struct SelfCheck {
  std::vector<CheckedFence> fences;
  std::vector<BlocklistEntry> removed = {};
  std::vector<BlocklistEntry> remain = {};  ///< fences that keep an address of a removed one fenced
};

/// Control thread only.
class Fencer {
 public:
  /// Returns the monitors of a cluster in config.json.
  using Monitors = std::function<result<std::vector<std::string>>(const std::string& cluster_id)>;
  using Look = std::function<task<NodeWriters>(Until)>;
  /// `look` examines the node of this process; null: this process only fences.
  Fencer(image::Clusters& clusters, Monitors monitors, Look look = {})
      : clusters_(clusters), monitors_(std::move(monitors)), look_(std::move(look)) {}

  /// Gives each block an entry of its own, for that long from now; an entry that lasts longer stays so. On success,
  /// every client of this agent has the OSD map with the fence.
  task<result<Report>> fence(Asker asker, Order order, Until until);
  task<result<Report>> unfence(Asker asker, Order order, Until until);
  task<result<Blocklist>> list(Asker asker, Until until);
  /// The addresses under which this node's volumes are served, each once; without any, the address of the client that
  /// asked.
  struct Clients {
    std::string fsid;
    std::vector<AddressBlock> addresses;
  };
  task<result<Clients>> clients(Asker asker, Until until);
  /// Checks whether this node may be let in again (docs/dead-node.md#without-a-reboot). It ends this agent's clients
  /// that the cluster refuses. `unfence`: removes the fences that are clean.
  task<result<SelfCheck>> self_check(Asker asker, bool unfence, Until until);

 private:
  struct Begun {
    image::Access to;
    Report report;
  };
  /// Reads the order, and the present blocklist.
  task<result<Begun>> begin(const Asker& asker, const Order& order, Until until);
  result<image::Access> access(const Asker& asker) const;
  task<result<>> block(image::Access to, std::vector<BlocklistEntry> entries, std::chrono::seconds duration,
                       Until until);
  task<result<>> block_each(image::Access to, AddressBlock block, std::chrono::seconds duration, Until until);
  task<result<>> unfence_clean(image::Access to, Asker asker, SelfCheck& check, image::Blocklist now, Until until);
  image::Clusters& clusters_;
  Monitors monitors_;
  Look look_;
};

}  // namespace corbd::fence
