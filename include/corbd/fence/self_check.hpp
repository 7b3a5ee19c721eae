// Decides whether a node that a cluster has fenced may be let in again: nothing of the node can write there any more.
// Needs neither a cluster nor a node.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "corbd/image/blocklist.hpp"

namespace corbd::fence {

/// Everything on a node that may write to a cluster, besides the clients of its agent.
struct NodeWriters {
  /// A volume that has a record and a device which this agent serves.
  struct Volume {
    std::string id;
    std::string fsid;  ///< cluster of its image
    std::string device;
    bool given_up = false;  ///< for good: its device answers EIO from now on
    bool in_use = false;    ///< mounted, published, or below another device
  };
  /// A configured device that takes requests.
  struct Device {
    std::string path;
    std::string volume_id = {};  ///< empty: it has none
    std::string fsid = {};       ///< cluster, if the kernel's own client serves it; empty: unknown
  };
  std::vector<Volume> volumes = {};
  std::vector<Device> devices = {};
  std::vector<std::string> programs = {};  ///< other processes with a Ceph client: "rbd-nbd, process 4711"
  std::vector<std::string> unsent = {};    ///< sockets without an owner whose data the kernel still sends
  bool cephfs = false;                     ///< the kernel has a CephFS mounted, of any cluster
  std::vector<std::string> unseen = {};    ///< things that could not be examined, and why
};

struct CheckFacts {
  image::OwnClients clients;  ///< after the agent has ended the refused ones
  NodeWriters node;
  image::Blocklist before, now;  ///< read before and after everything else
};

/// Reason why a fence has to stay. From kFirstUnknown on, a reason says only that nobody knows.
enum class Cause {
  not_given_up,
  still_used,
  device,
  program,
  cephfs,
  unsent,
  own_client,
  ending_early,
  unseen,
  made_anew,
  wider,
  never_here,
};
inline constexpr Cause kFirstUnknown = Cause::unseen;

/// A reason, with its sentence for people.
struct Reason {
  Cause cause;
  std::string what;  ///< for people, with the way out
};

enum class Verdict {
  clean,    ///< the fenced addresses may be let in again
  unclean,  ///< something may still write
  unknown   ///< nothing that may write was seen, but not everything could be seen
};
std::string_view name(Verdict verdict);

/// A fence that covers a client of this node.
struct CheckedFence {
  image::BlocklistEntry entry;
  std::vector<Reason> reasons = {};
  Verdict verdict() const;
};

/// Returns each fence of a whole address or block that covers a client of this node.
std::vector<CheckedFence> self_check(const CheckFacts& facts);

}  // namespace corbd::fence
