// A client that has an image, the facts about its node, and whether the image may be taken from it (docs/dead-node.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace corbd::plan {

/// The node where a client runs, by the orchestrator and the image's metadata.
struct HolderNode {
  enum class State {
    unknown,  ///< the node is unknown, or nobody answers
    ready,
    not_ready,
    out_of_service,  ///< a person or a remediator has tainted it: it is off, or must be
    gone             ///< its Node object is gone
  } state = State::unknown;
  std::string name = {};              ///< empty: unknown
  std::string since = {};             ///< when it became ready or not ready; empty: unknown
  std::optional<bool> attached = {};  ///< whether the volume is attached there; nothing: unknown
  std::string attached_since = {};
  std::string why = {};  ///< reason why something is unknown
  bool operator==(const HolderNode&) const = default;
};

struct Holder {
  std::string address;      ///< "10.0.0.7:0/1"
  std::string client = {};  ///< "client.4119"; empty: unknown
  bool watches = false;     ///< it has the image open
  bool locks = false;       ///< it has the exclusive lock
  std::string cookie = {};  ///< cookie of its lock
  bool blocked = false;     ///< it is on the cluster's blocklist
  HolderNode node = {};
  bool operator==(const Holder&) const = default;
};

/// Returns "client.4119 at 10.0.0.7:0/1 on node worker-3 (not ready since ..., the volume is attached there)".
std::string text(const Holder& holder);
std::string_view name(HolderNode::State state);

/// The nodes that the image's metadata names for a volume: those at their client's address, and those that only claim
/// to use it. `metadata`: entries of ceph-csi (docs/sources.md#node-to-controller).
struct Noted {
  std::vector<std::string> at_address;
  std::vector<std::string> others;
};

/// The client that is searched, and the volume on whose behalf.
struct HolderQuery {
  std::string volume_id;  ///< volume whose attachment counts; "": none
  std::string address;    ///< address of the client, with its nonce: "10.0.0.7:0/1"
  std::string host;       ///< host in that address: "10.0.0.7"
  Noted noted = {};
};

/// Whether the volume cannot be the holder's any more, by the facts about its node: it is out of service, or it and its
/// attachment are gone.
bool is_proven_dead(const Holder& holder);

}  // namespace corbd::plan
