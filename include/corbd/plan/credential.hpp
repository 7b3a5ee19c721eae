// A Ceph user and its key, which only count together.
#pragma once

#include <optional>
#include <string>

#include "corbd/core/secret.hpp"

namespace corbd::plan {

/// One value: whoever rotates keys may rename the user too (docs/sources.md#rotated-keys).
struct Credential {
  std::string user;  ///< without "client."
  Secret key;
  bool empty() const { return key.empty(); }
  bool operator==(const Credential&) const = default;
};

/// What the node-stage Secret of a volume has now, as the orchestrator says.
struct StageSecret {
  std::string name;  ///< "Secret ceph-csi/rbd-node"; empty: nobody knows of one here
  std::optional<Credential> credential = std::nullopt;
  std::string why = {};  ///< there is none
};

}  // namespace corbd::plan
