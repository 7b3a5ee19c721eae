// Carries out what a fencing request wants, on a cluster's blocklist. Each call either did everything, or its error
// says what is done and what is not; a repeat finishes it.
#pragma once

#include <functional>

#include "corbd/fence/fence.hpp"
#include "corbd/fence/self_check.hpp"
#include "corbd/image/image.hpp"

namespace corbd::fence {

/// The cluster, and who asks.
struct Asker {
  std::string cluster_id;  ///< in config.json
  std::string user;        ///< Ceph's, without "client."
  Secret key;
};

struct Order {
  std::vector<std::string> blocks;  ///< as CIDR
  std::chrono::seconds duration = kLasting;
  bool forced = false;   ///< also blocks that have a client of this agent
  bool dry_run = false;  ///< only looks
};

/// What was done, or would be.
struct Report {
  std::vector<BlocklistEntry> changed;
  std::vector<AddressBlock> blocks;  ///< of the order, as they were understood
  Blocklist before;
  std::vector<BlocklistEntry> remain = {};  ///< of an unfencing: what keeps some of the addresses fenced
};

/// What a node's check of itself came to.
struct SelfCheck {
  std::vector<CheckedFence> fences;
  std::vector<BlocklistEntry> removed = {};
  std::vector<BlocklistEntry> remain = {};  ///< fences that keep an address of a removed one fenced
};

/// Control thread only.
class Fencer {
 public:
  /// The monitors of a cluster in config.json.
  using Monitors = std::function<result<std::vector<std::string>>(const std::string& cluster_id)>;
  using Look = std::function<task<NodeWriters>(Until)>;
  /// `look`: at the node of this process; null if it only fences.
  Fencer(image::Clusters& clusters, Monitors monitors, Look look = {})
      : clusters_(clusters), monitors_(std::move(monitors)), look_(std::move(look)) {}

  /// Each block gets an entry of its own, for so long from now; one that lasts longer stays so. When it has succeeded,
  /// every client of this agent has the OSD map with the fence.
  task<result<Report>> fence(Asker asker, Order order, Until until);
  task<result<Report>> unfence(Asker asker, Order order, Until until);
  task<result<Blocklist>> list(Asker asker, Until until);
  /// The addresses under which this node's volumes are served, each once; if there is none, the address of the client
  /// that asked.
  struct Clients {
    std::string fsid;
    std::vector<AddressBlock> addresses;
  };
  task<result<Clients>> clients(Asker asker, Until until);
  /// Whether this node may be let in again (docs/dead-node.md#without-a-reboot). It ends this agent's clients that the
  /// cluster refuses. `unfence`: takes the fences away that are clean.
  task<result<SelfCheck>> self_check(Asker asker, bool unfence, Until until);

 private:
  struct Begun {
    image::Access to;
    Report report;
  };
  /// Reads the order, and the blocklist as it is now.
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
