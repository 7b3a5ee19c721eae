// The rights that the agent asks of the API server, and whether it has them. deploy/ grants exactly these
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
  std::string_view without;     ///< what does not work without it
  bool of_this_driver = false;  ///< on the object that has the driver's name only
  /// May be granted by Roles in some namespaces instead. The review asks for all namespaces, so its no is not the last
  /// word.
  bool by_namespace = false;
};
std::span<const Right> rights();

struct Allowed {
  const Right* right;
  std::optional<bool> yes;  ///< absent: the API server did not say
  std::string text;         ///< why not
};

/// A SelfSubjectAccessReview for each. Every user may ask that of itself.
task<std::vector<Allowed>> review_rights(Api& api, std::string driver, Until until);

}  // namespace corbd::kube
