// AWS KMS: ceph-csi's types aws-metadata and aws-sts-metadata (docs/sources.md#kms-aws).
#pragma once

#include "types.hpp"

namespace corbd::kms::aws {

inline constexpr std::string_view kKeys[] = {"AWS_REGION", "KMS_SECRET_NAME"};
inline constexpr std::string_view kStsKeys[] = {"secretName"};

/// aws-metadata: uses an access key from a Secret in our own namespace.
result<> check(const Section& section, const std::string& id);
task<result<Secret>> unwrap(Transport& transport, KeyCall ask, std::string wrapped);
task<result<std::string>> wrap(Transport& transport, KeyCall ask, Secret key);

/// aws-sts-metadata: uses the role that a Secret in the tenant's namespace names, and that the pod's OIDC token may
/// assume.
result<> check_sts(const Section& section, const std::string& id);
task<result<Secret>> unwrap_sts(Transport& transport, KeyCall ask, std::string wrapped);
task<result<std::string>> wrap_sts(Transport& transport, KeyCall ask, Secret key);

/// Returns "kms.us-east-1.amazonaws.com", for example.
std::string host_of(std::string_view service, std::string_view region);

}  // namespace corbd::kms::aws
