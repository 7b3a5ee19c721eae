// A client that has an image, what is known of its node, and whether the image may be taken from it
// (docs/dead-node.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace corbd::plan {

/// The node where a client runs, as the orchestrator and the image's metadata tell.
struct HolderNode {
  enum class State {
    unknown,  ///< nobody knows the node, or nobody answers
    ready,
    not_ready,
    out_of_service,  ///< a person or a remediator has tainted it: it is off, or must be
    gone             ///< it has no Node object any more
  } state = State::unknown;
  std::string name = {};              ///< empty: not known
  std::string since = {};             ///< when it became ready or not ready; empty: not known
  std::optional<bool> attached = {};  ///< whether the volume is attached there; nothing: not known
  std::string attached_since = {};
  std::string why = {};  ///< why something is not known
  bool operator==(const HolderNode&) const = default;
};

struct Holder {
  std::string address;      ///< "10.0.0.7:0/1"
  std::string client = {};  ///< "client.4119"; empty: not known
  bool watches = false;     ///< it has the image open
  bool locks = false;       ///< it has the exclusive lock
  std::string cookie = {};  ///< of its lock
  bool blocked = false;     ///< it is on the cluster's blocklist
  HolderNode node = {};
  bool operator==(const Holder&) const = default;
};

/// "client.4119 at 10.0.0.7:0/1 on node worker-3 (not ready since ..., the volume is attached there)".
std::string text(const Holder& holder);
std::string_view name(HolderNode::State state);

/// The nodes that the image's metadata names for a volume: by the address of their client, and those that only say that
/// they use it. `metadata`: entries of ceph-csi (docs/sources.md#node-to-controller).
struct Noted {
  std::vector<std::string> at_address;
  std::vector<std::string> others;
};

/// Which client is looked for, and on whose behalf.
struct HolderQuery {
  std::string volume_id;  ///< whose attachment counts; "": none
  std::string address;    ///< the client's, with its nonce: "10.0.0.7:0/1"
  std::string host;       ///< of that address: "10.0.0.7"
  Noted noted = {};
};

/// A holder that cannot be the volume's any more, by what is known of its node: it is out of service, or it and its
/// attachment are gone.
bool is_proven_dead(const Holder& holder);

}  // namespace corbd::plan
