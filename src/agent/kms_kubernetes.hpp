// The API server as the KMSs of encrypted volumes use it.
#pragma once

#include "corbd/kms/kms.hpp"
#include "corbd/kube/api.hpp"

namespace corbd::agent {

class KmsKubernetes final : public kms::Kubernetes {
 public:
  /// `api`: an error if there is no API server.
  explicit KmsKubernetes(result<kube::Api*> api) : api_(std::move(api)) {}
  task<result<std::map<std::string, Secret>>> secret(std::string name_space, std::string name, Until until) override;
  task<result<std::map<std::string, std::string>>> config_map(std::string name_space, std::string name,
                                                              Until until) override;
  task<result<Secret>> account_token(std::string name_space, std::string service_account,
                                     std::vector<std::string> audiences, Until until) override;

 private:
  task<result<boost::json::object>> get(kube::Resource resource, std::string what, std::string name_space,
                                        std::string name, Until until);
  const result<kube::Api*> api_;
};

}  // namespace corbd::agent
