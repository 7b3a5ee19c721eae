// Azure Key Vault, which stores the keys of volumes as secrets: ceph-csi's type azure-kv (docs/sources.md#kms-azure).
#pragma once

#include "types.hpp"

namespace corbd::kms::azure {

inline constexpr std::string_view kKeys[] = {"AZURE_VAULT_URL", "AZURE_CLIENT_ID", "AZURE_TENANT_ID",
                                             "AZURE_CERT_SECRET_NAME"};
result<> check(const Section& section, const std::string& id);
task<result<Stored>> fetch(Transport& transport, KeyCall ask);
/// The vault takes whatever arrives last: `version` is never set.
task<result<>> store(Transport& transport, KeyCall ask, Secret key, std::optional<std::uint64_t> version);

/// Makes the JWT by which a client proves to Entra ID that it has the key of its certificate, valid for ten minutes:
/// RS256, with x5t. `pem`: the certificate and the key. `audience`: the token endpoint. `id`: another one each time.
/// failed_precondition: it is no such PEM.
result<Secret> client_assertion(const Secret& pem, const std::string& client, const std::string& audience,
                                std::chrono::system_clock::time_point now, const std::string& id);

}  // namespace corbd::kms::azure
