// AWS's Signature Version 4, as far as a KMS's calls need it. Pure.
#pragma once

#include <chrono>
#include <string>

#include "corbd/core/secret.hpp"
#include "corbd/http/client.hpp"

namespace corbd::kms {

struct AwsCredentials {
  std::string key_id;
  Secret secret_key;
  Secret session_token;  ///< empty: the key is no temporary one
};

/// Signs a request for "/" without a query: the body and every header, which must include Host as it is sent. It adds
/// X-Amz-Date, with a session token X-Amz-Security-Token, and Authorization.
void sign_v4(http::Message& message, const AwsCredentials& credentials, const std::string& region,
             const std::string& service, std::chrono::system_clock::time_point now);

}  // namespace corbd::kms
