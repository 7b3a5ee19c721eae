// IBM Key Protect, and Hyper Protect Crypto Services with the same API: ceph-csi's type ibmkeyprotect
// (docs/sources.md#kms-key-protect).
#pragma once

#include "types.hpp"

namespace corbd::kms::key_protect {

inline constexpr std::string_view kKeys[] = {"IBM_KP_SERVICE_INSTANCE_ID", "IBM_KP_SECRET_NAME", "IBM_KP_BASE_URL",
                                             "IBM_KP_TOKEN_URL", "IBM_KP_REGION"};
result<> check(const Section& section, const std::string& id);
task<result<Secret>> unwrap(Transport& transport, KeyCall ask, std::string wrapped);
task<result<std::string>> wrap(Transport& transport, KeyCall ask, Secret key);

}  // namespace corbd::kms::key_protect
