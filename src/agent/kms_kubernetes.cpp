#include "kms_kubernetes.hpp"

#include <algorithm>

#include "corbd/core/text.hpp"
#include "corbd/kube/objects.hpp"

namespace corbd::agent {
namespace {

/// Names of tenants and Secrets come from a journal and from the KMS config, and become parts of a path.
result<> check_name(const std::string& name) {
  constexpr std::size_t longest = 253;
  const bool plain = std::ranges::all_of(
      name, [](char at) { return (at >= 'a' && at <= 'z') || (at >= '0' && at <= '9') || at == '.' || at == '-'; });
  if (plain && !name.empty() && name.size() <= longest && name != "." && name != "..") return {};
  return Error{errc::failed_precondition, "\"" + printable(name) + "\" is no name of Kubernetes"};
}

}  // namespace

task<result<boost::json::object>> KmsKubernetes::get(kube::Resource resource, std::string what, std::string name_space,
                                                     std::string name, Until until) {
  what += " " + printable(name_space) + "/" + printable(name);
  if (!api_) co_return with_context(what, api_.error());
  for (const auto& part : {name_space, name})
    if (auto checked = check_name(part); !checked) co_return with_context(what, checked.error());
  auto object = co_await (*api_)->get(std::move(resource), name, until);
  if (!object) co_return with_context(what, object.error().error);
  co_return std::move(*object);
}

task<result<std::map<std::string, Secret>>> KmsKubernetes::secret(std::string name_space, std::string name,
                                                                  Until until) {
  auto object = co_await get(kube::secrets_of(name_space), "Secret", name_space, name, until);
  if (!object) co_return object.error();
  auto data = kube::data_of_secret(*object);
  wipe(*object);
  co_return data;
}

task<result<std::map<std::string, std::string>>> KmsKubernetes::config_map(std::string name_space, std::string name,
                                                                           Until until) {
  const auto object = co_await get(kube::config_maps_of(name_space), "ConfigMap", name_space, name, until);
  if (!object) co_return object.error();
  co_return kube::data_of_config_map(*object);
}

task<result<Secret>> KmsKubernetes::account_token(std::string name_space, std::string service_account,
                                                  std::vector<std::string> audiences, Until until) {
  const std::string what = "a token of ServiceAccount " + printable(name_space) + "/" + printable(service_account);
  if (!api_) co_return with_context(what, api_.error());
  for (const auto& part : {name_space, service_account})
    if (auto checked = check_name(part); !checked) co_return with_context(what, checked.error());
  auto answer =
      co_await (*api_)->create(kube::tokens_of(name_space, service_account), kube::token_request(audiences), until);
  if (!answer) co_return with_context(what, answer.error().error);
  auto token = kube::token_of(*answer);
  wipe(*answer);
  if (token.empty()) co_return Error{errc::io, what + ": the API server's answer has no status.token"};
  co_return token;
}

}  // namespace corbd::agent
