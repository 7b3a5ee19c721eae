// Configuration of ceph-csi's KMSs of HashiCorp Vault: vault.go, vault_tokens.go, vault_sa.go. Pure.
#pragma once

#include <array>
#include <map>

#include "section.hpp"

namespace corbd::kms::vault {

/// Identity of a KMS at Vault.
enum class Login {
  pod,            ///< the pod's own service account
  token,          ///< a token in a Secret of the tenant's
  tenant_account  ///< a service account of the tenant's
};

inline constexpr std::array<std::string_view, 13> kPodKeys{
    "vaultAddress",   "vaultBackend",        "vaultBackendPath",   "vaultDestroyKeys",  "vaultTLSServerName",
    "vaultNamespace", "vaultAuthNamespace",  "vaultCAVerify",      "vaultCAFromSecret", "vaultAuthPath",
    "vaultRole",      "vaultPassphraseRoot", "vaultPassphrasePath"};
inline constexpr std::array<std::string_view, 24> kTokenKeys{"vaultAddress",
                                                             "vaultBackend",
                                                             "vaultBackendPath",
                                                             "vaultDestroyKeys",
                                                             "vaultTLSServerName",
                                                             "vaultNamespace",
                                                             "vaultAuthNamespace",
                                                             "vaultCAVerify",
                                                             "vaultCAFromSecret",
                                                             "vaultClientCertFromSecret",
                                                             "vaultClientCertKeyFromSecret",
                                                             "tenantConfigName",
                                                             "tenantTokenName",
                                                             "VAULT_ADDR",
                                                             "VAULT_BACKEND",
                                                             "VAULT_BACKEND_PATH",
                                                             "VAULT_DESTROY_KEYS",
                                                             "VAULT_CACERT",
                                                             "VAULT_TLS_SERVER_NAME",
                                                             "VAULT_CLIENT_CERT",
                                                             "VAULT_CLIENT_KEY",
                                                             "VAULT_AUTH_NAMESPACE",
                                                             "VAULT_NAMESPACE",
                                                             "VAULT_SKIP_VERIFY"};
inline constexpr std::array<std::string_view, 26> kTenantAccountKeys{"vaultAddress",
                                                                     "vaultBackend",
                                                                     "vaultBackendPath",
                                                                     "vaultDestroyKeys",
                                                                     "vaultTLSServerName",
                                                                     "vaultNamespace",
                                                                     "vaultAuthNamespace",
                                                                     "vaultCAVerify",
                                                                     "vaultCAFromSecret",
                                                                     "vaultClientCertFromSecret",
                                                                     "vaultClientCertKeyFromSecret",
                                                                     "tenantConfigName",
                                                                     "tenantSAName",
                                                                     "vaultAuthPath",
                                                                     "vaultRole",
                                                                     "VAULT_ADDR",
                                                                     "VAULT_BACKEND",
                                                                     "VAULT_BACKEND_PATH",
                                                                     "VAULT_DESTROY_KEYS",
                                                                     "VAULT_CACERT",
                                                                     "VAULT_TLS_SERVER_NAME",
                                                                     "VAULT_CLIENT_CERT",
                                                                     "VAULT_CLIENT_KEY",
                                                                     "VAULT_AUTH_NAMESPACE",
                                                                     "VAULT_NAMESPACE",
                                                                     "VAULT_SKIP_VERIFY"};

struct Settings {
  std::string address;
  std::string server_name;                     ///< name in its certificate; empty: the host in the address
  bool verify = true;                          ///< checks its certificate
  std::string ca_secret;                       ///< empty: the system's authorities
  std::string certificate_secret, key_secret;  ///< the client's; empty: none
  std::string backend;                         ///< "kv", "kv-v2", or another value that makes the client ask
  std::string backend_path = "secret/";
  std::string name_space;      ///< Vault's: the first part of a key's path
  std::string auth_namespace;  ///< Vault's: for the login
  std::string auth_mount = "kubernetes";
  std::string role = "csi-kubernetes";
  std::string passphrase_path;                        ///< prefix of the volume's ID
  std::string tenant_config = "ceph-csi-kms-config";  ///< a ConfigMap of the tenant's; empty: none
  std::string tenant_token = "ceph-csi-kms-token";    ///< a Secret
  std::string tenant_account = "ceph-csi-vault-sa";   ///< a service account
};

/// failed_precondition says which key is missing or wrong. `id`: the KMS's.
result<Settings> read_settings(Login login, const Section& section, const std::string& id);
/// Applies the tenant's ConfigMap. Keys that a tenant may not change are ignored.
result<> apply_tenant(Login login, const std::map<std::string, std::string>& data, const std::string& id,
                      Settings& into);

/// Returns "kubernetes" of "/v1/auth/kubernetes/login".
std::string auth_mount_of(std::string_view auth_path);
/// Works like Go's path.Join: removes empty parts, "." and "..".
std::string join_path(std::initializer_list<std::string_view> parts);
/// Returns the path of the key, below /v1/.
std::string key_path(const Settings& settings, bool is_v2, std::string_view volume_id);

}  // namespace corbd::kms::vault
