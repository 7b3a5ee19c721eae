// A server that speaks KMIP 1.4: ceph-csi's type kmip, also for IBM GKLM (docs/sources.md#kms-kmip).
#pragma once

#include "service.hpp"
#include "types.hpp"

namespace corbd::kms::kmip {

inline constexpr std::string_view kKeys[] = {"KMIP_ENDPOINT",   "KMIP_SECRET_NAME", "USE_CRYPTO_RPC", "TLS_SERVER_NAME",
                                             "TLS_MIN_VERSION", "READ_TIMEOUT",     "WRITE_TIMEOUT"};
result<> check(const Section& section, const std::string& id);
task<result<Secret>> unwrap(Transport& transport, KeyCall ask, std::string wrapped);
task<result<std::string>> wrap(Transport& transport, KeyCall ask, Secret key);

enum class KmipOperation : std::uint32_t { get = 0x0a, encrypt = 0x1f, decrypt = 0x20 };
/// Makes a message with that one request.
std::string request_of(KmipOperation operation, std::string_view payload);
/// Returns the items in the payload of the message's one answer, as a view of it.
result<std::string_view> payload_of(std::string_view message, const Call& call);

}  // namespace corbd::kms::kmip
