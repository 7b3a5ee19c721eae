// Rights that the agent needs at the API server, and the check for them. deploy/ grants exactly these
// (tests/house/manifests).
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/kube/api.hpp"

namespace corbd::kube {

struct Right {
  std::string_view verb, group, resource;
  std::string_view without;     ///< effect of its absence
  bool of_this_driver = false;  ///< only on the object with the driver's name
  /// Whether Roles in some namespaces may grant it instead. The review asks for all namespaces, so its "no" is not
  /// final.
  bool by_namespace = false;
};
std::span<const Right> rights();

struct Allowed {
  const Right* right;
  std::optional<bool> yes;  ///< absent: the API server did not answer
  std::string text;         ///< the reason of a "no"
};

/// Makes a SelfSubjectAccessReview for each. Every user may make them about itself.
task<std::vector<Allowed>> review_rights(Api& api, std::string driver, Until until);

}  // namespace corbd::kube
