// A Ceph user and its key, which belong together.
#pragma once

#include <optional>
#include <string>

#include "corbd/core/secret.hpp"

namespace corbd::plan {

/// One value, because a rotation of keys may rename the user too (docs/sources.md#rotated-keys).
struct Credential {
  std::string user;  ///< without "client."
  Secret key;
  bool empty() const { return key.empty(); }
  bool operator==(const Credential&) const = default;
};

/// Present content of a volume's node-stage Secret, by the orchestrator.
struct StageSecret {
  std::string name;  ///< "Secret ceph-csi/rbd-node"; empty: no Secret is known here
  std::optional<Credential> credential = std::nullopt;
  std::string why = {};  ///< reason why there is none
};

}  // namespace corbd::plan
