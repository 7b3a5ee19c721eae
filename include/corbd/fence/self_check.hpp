// Whether a node that a cluster has fenced may be let in again: nothing of it can write there any more. Decided here
// without a cluster and without a node.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "corbd/image/blocklist.hpp"

namespace corbd::fence {

/// What a node shows of everything that may write to a cluster, besides the clients of its agent.
struct NodeWriters {
  /// A volume that has a record and a device which this agent serves.
  struct Volume {
    std::string id;
    std::string fsid;  ///< of its image's cluster
    std::string device;
    bool given_up = false;  ///< for good: its device answers EIO, whatever comes
    bool in_use = false;    ///< mounted, published, or below another device
  };
  /// A configured device that takes requests.
  struct Device {
    std::string path;
    std::string volume_id = {};  ///< empty: it carries none
    std::string fsid = {};       ///< of the cluster, if the kernel's own client serves it; empty: not known
  };
  std::vector<Volume> volumes = {};
  std::vector<Device> devices = {};
  std::vector<std::string> programs = {};  ///< other processes with a Ceph client: "rbd-nbd, process 4711"
  std::vector<std::string> unsent = {};    ///< sockets that nobody has any more, and whose data the kernel still sends
  bool cephfs = false;                     ///< the kernel has a CephFS mounted, of whichever cluster
  std::vector<std::string> unseen = {};    ///< what could not be looked at, and why
};

struct CheckFacts {
  image::OwnClients clients;  ///< after the agent has ended those that are refused
  NodeWriters node;
  image::Blocklist before, now;  ///< read before the rest, and after it
};

/// Why a fence has to stay. Those from kFirstUnknown on say only that nobody knows.
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

struct Reason {
  Cause cause;
  std::string what;  ///< for people, with the way out
};

enum class Verdict {
  clean,    ///< what the fence covers may be let in again
  unclean,  ///< something may still write
  unknown   ///< nothing was seen that may, and not everything was seen
};
std::string_view name(Verdict verdict);

/// A fence that covers a client of this node.
struct CheckedFence {
  image::BlocklistEntry entry;
  std::vector<Reason> reasons = {};
  Verdict verdict() const;
};

/// Each fence of a whole address or block that covers a client of this node.
std::vector<CheckedFence> self_check(const CheckFacts& facts);

}  // namespace corbd::fence
