#include "vault_config.hpp"

#include <algorithm>

#include "corbd/core/text.hpp"

namespace corbd::kms::vault {
namespace {

/// Keys of a section with KMS_PROVIDER, and ceph-csi's names for them.
struct Translation {
  const char *from, *to;
};
constexpr std::array<Translation, 10> kTranslations{{{"VAULT_ADDR", "vaultAddress"},
                                                     {"VAULT_BACKEND", "vaultBackend"},
                                                     {"VAULT_BACKEND_PATH", "vaultBackendPath"},
                                                     {"VAULT_DESTROY_KEYS", "vaultDestroyKeys"},
                                                     {"VAULT_CACERT", "vaultCAFromSecret"},
                                                     {"VAULT_TLS_SERVER_NAME", "vaultTLSServerName"},
                                                     {"VAULT_CLIENT_CERT", "vaultClientCertFromSecret"},
                                                     {"VAULT_CLIENT_KEY", "vaultClientCertKeyFromSecret"},
                                                     {"VAULT_AUTH_NAMESPACE", "vaultAuthNamespace"},
                                                     {"VAULT_NAMESPACE", "vaultNamespace"}}};
/// Keys that a tenant's ConfigMap may change; the other two are for tenants with a service account.
constexpr std::array<std::string_view, 8> kTenantKeys{"vaultAddress",       "vaultBackend",    "vaultBackendPath",
                                                      "vaultAuthNamespace", "vaultNamespace",  "vaultTLSServerName",
                                                      "vaultCAVerify",      "vaultDestroyKeys"};
constexpr std::array<std::string_view, 3> kTenantAccountsOwn{"tenantSAName", "vaultAuthPath", "vaultRole"};

Error wrong_value(const std::string& id, std::string_view key) {
  return {errc::failed_precondition,
          "KMS \"" + id + "\" has a wrong value of " + std::string(key) + ": correct it in the ConfigMap"};
}

/// Reads texts, and keeps the first error.
class Options {
 public:
  Options(const Section& section, const std::string& id) : section_(section), id_(id) {}

  /// Leaves `into` unchanged if the key is missing. Removes white space at its ends, as Vault's client does.
  bool read(std::string_view key, std::string& into) {
    auto found = text_option(section_, key, id_);
    if (!found) keep(found.error());
    if (!found || !*found) return false;
    into = trimmed(**found);
    return true;
  }
  void read_bool(std::string_view key, bool& into) {
    std::string text;
    if (!read(key, text)) return;
    const auto value = parse_bool(text);
    if (!value) keep(wrong_value(id_, key));
    into = value.value_or(into);
  }
  void keep(Error error) {
    if (!error_) error_ = std::move(error);
  }
  result<> done() const {
    if (error_) return *error_;
    return {};
  }

 private:
  const Section& section_;
  const std::string& id_;
  std::optional<Error> error_;
};

/// Works like ceph-csi's transformConfig: the other keys of such a section have no effect.
result<Section> translated(const Section& section, const std::string& id) {
  Section made;
  for (const auto& [from, to] : kTranslations) {
    auto value = text_option(section, from, id);
    if (!value) return value.error();
    if (*value) made[to] = **value;
  }
  const auto skip = text_option(section, "VAULT_SKIP_VERIFY", id);
  if (!skip) return skip.error();
  if (!*skip) return made;
  const auto skips = parse_bool(**skip);
  if (!skips) return wrong_value(id, "VAULT_SKIP_VERIFY");
  made["vaultCAVerify"] = *skips ? "false" : "true";
  return made;
}

/// Reads the keys that a KMS's section and a tenant's ConfigMap share.
void read_connection(Options& options, Settings& into) {
  options.read("vaultAddress", into.address);
  options.read("vaultBackend", into.backend);
  options.read("vaultBackendPath", into.backend_path);
  options.read("vaultTLSServerName", into.server_name);
  options.read_bool("vaultCAVerify", into.verify);
  std::string unused;
  options.read("vaultDestroyKeys", unused);  // has no effect, because nothing here removes a key
  options.read("vaultNamespace", into.name_space);
}

void read_account(Options& options, Settings& into) {
  options.read("vaultRole", into.role);
  std::string auth_path;
  if (!options.read("vaultAuthPath", auth_path)) return;
  into.auth_mount = auth_mount_of(auth_path);
}

void read_pod(Options& options, Settings& into) {
  read_account(options, into);
  std::string root;
  if (options.read("vaultPassphraseRoot", root))
    into.backend_path = root.starts_with("/v1/") ? root.substr(std::string_view("/v1/").size()) : root;
  options.read("vaultPassphrasePath", into.passphrase_path);
}

void read_tenant(Login login, Options& options, Settings& into) {
  options.read("vaultClientCertFromSecret", into.certificate_secret);
  options.read("vaultClientCertKeyFromSecret", into.key_secret);
  options.read("tenantConfigName", into.tenant_config);
  if (login == Login::token) {
    options.read("tenantTokenName", into.tenant_token);
    return;
  }
  options.read("tenantSAName", into.tenant_account);
  read_account(options, into);
}

result<> check_address(const Settings& settings, const std::string& id) {
  const auto url = parse_url(settings.address);
  if (!url)
    return Error{errc::failed_precondition, "the vaultAddress of KMS \"" + id + "\" is \"" +
                                                printable(settings.address) +
                                                "\", which is not of the form https://HOST:PORT"};
  if (settings.role.empty()) return wrong_value(id, "vaultRole");
  return {};
}

void finish(Settings& settings) {
  if (settings.backend_path.empty()) settings.backend_path = "secret/";
  if (settings.auth_mount.empty()) settings.auth_mount = "kubernetes";
}

}  // namespace

result<Settings> read_settings(Login login, const Section& section, const std::string& id) {
  const Section* from = &section;
  Section other;
  if (login != Login::pod && section.contains("KMS_PROVIDER")) {
    auto made = translated(section, id);
    if (!made) return made.error();
    other = std::move(*made);
    from = &other;
  }
  if (auto there = needed_option(*from, "vaultAddress", id); !there) return there.error();
  Options options(*from, id);
  Settings settings;
  read_connection(options, settings);
  options.read("vaultCAFromSecret", settings.ca_secret);
  options.read("vaultAuthNamespace", settings.auth_namespace);
  if (settings.auth_namespace.empty()) settings.auth_namespace = settings.name_space;
  if (login == Login::pod)
    read_pod(options, settings);
  else
    read_tenant(login, options, settings);
  if (auto read = options.done(); !read) return read.error();
  finish(settings);
  if (auto checked = check_address(settings, id); !checked) return checked.error();
  return settings;
}

result<> apply_tenant(Login login, const std::map<std::string, std::string>& data, const std::string& id,
                      Settings& into) {
  Section section;
  for (const auto& [key, value] : data) {
    const bool theirs = std::ranges::find(kTenantKeys, key) != kTenantKeys.end();
    const bool of_account =
        login == Login::tenant_account && std::ranges::find(kTenantAccountsOwn, key) != kTenantAccountsOwn.end();
    if (theirs || of_account) section[key] = value;
  }
  const bool logs_in_there = into.auth_namespace == into.name_space;
  Options options(section, id);
  read_connection(options, into);
  std::string name_space, auth_namespace;
  const bool renamed = options.read("vaultNamespace", name_space);
  // Without a name of its own, the login follows the namespace, unless the KMS's section keeps the two apart.
  if (options.read("vaultAuthNamespace", auth_namespace) || (renamed && logs_in_there))
    into.auth_namespace = auth_namespace.empty() ? name_space : auth_namespace;
  if (login == Login::tenant_account) {
    options.read("tenantSAName", into.tenant_account);
    read_account(options, into);
  }
  if (auto read = options.done(); !read) return read;
  finish(into);
  return check_address(into, id);
}

std::string auth_mount_of(std::string_view auth_path) {
  std::string mount;
  bool below = false;
  for (const auto part : pieces(auth_path, '/')) {
    if (part == "login") break;
    if (below && part != "auth") mount += (mount.empty() ? "" : "/") + std::string(part);
    below |= part == "auth";
  }
  return mount.empty() ? std::string(auth_path) : mount;
}

std::string join_path(std::initializer_list<std::string_view> parts) {
  std::vector<std::string_view> clean;
  for (const auto all : parts)
    for (const auto part : pieces(all, '/')) {
      if (part.empty() || part == ".") continue;
      if (part != "..")
        clean.push_back(part);
      else if (!clean.empty())
        clean.pop_back();
    }
  std::string path;
  for (const auto part : clean) path += (path.empty() ? "" : "/") + std::string(part);
  return path;
}

std::string key_path(const Settings& settings, bool is_v2, std::string_view volume_id) {
  const std::string key = join_path({settings.passphrase_path, volume_id});
  return join_path({settings.name_space, settings.backend_path, is_v2 ? "data" : "", key});
}

}  // namespace corbd::kms::vault
