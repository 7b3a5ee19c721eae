#include "corbd/core/process.hpp"
#include "corbd/kube/own_node.hpp"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

task<> review(kube::Api& api, const std::string& driver, Until until, std::vector<kube::Allowed>& into) {
  into = co_await kube::review_rights(api, driver, until);
}

}  // namespace

result<std::vector<kube::Allowed>> api_rights(const std::string& driver) {
  constexpr std::chrono::seconds within{10};
  const auto access = kube::find_access(environment("KUBERNETES_CONFIG_PATH"), environment);
  if (!access) return access.error();
  std::vector<kube::Allowed> reviewed;
  kube::ask(*access,
            [&](kube::Api& api, Clock& clock) { return review(api, driver, {clock.now() + within}, reviewed); });
  return reviewed;
}

}  // namespace corbd::doctor
