// ceph-csi's KMSs of HashiCorp Vault, whose KV secrets engine has a secret for each volume. OpenBao is the same here.
#pragma once

#include <cstdint>

#include "vault_config.hpp"

namespace corbd::kms::vault {

// --- pure: requests and answers

/// Returns Vault's words in an answer with a status other than 2xx, for an error's text.
std::string said(const http::Reply& reply);
/// Makes the error for such an answer. `doing`: "logging in to KMS \"id\" at host:port".
Error refused(const std::string& doing, const http::Reply& reply);

/// `target`: below the address, with /v1/. `token` and `name_space` may be empty.
http::Message request_of(std::string method, std::string target, const Secret& token, const std::string& name_space);
std::string login_body(std::string_view role, const Secret& account_token);
result<Secret> token_in(const http::Reply& reply, const std::string& doing);
/// Whether the secrets engine at that path is KV of version 2. failed_precondition: there is none.
result<bool> is_v2_in(const http::Reply& reply, const std::string& backend_path, const std::string& doing);

/// A deleted key counts as none, and has a version.
result<Stored> stored_in(const http::Reply& reply, bool is_v2, const std::string& doing);
/// `version`: the version that the server must still have, if KV is of version 2.
std::string write_body(const Secret& passphrase, std::optional<std::uint64_t> version);

// --- the rows of the table

template <Login login>
result<> check(const Section& section, const std::string& id) {
  const auto read = read_settings(login, section, id);
  if (!read) return read.error();
  return {};
}
task<result<Stored>> fetch_by(Login login, Transport& transport, KeyCall ask);
task<result<>> store_by(Login login, Transport& transport, KeyCall ask, Secret key,
                        std::optional<std::uint64_t> version);
template <Login login>
task<result<Stored>> fetch(Transport& transport, KeyCall ask) {
  return fetch_by(login, transport, std::move(ask));
}
template <Login login>
task<result<>> store(Transport& transport, KeyCall ask, Secret key, std::optional<std::uint64_t> version) {
  return store_by(login, transport, std::move(ask), std::move(key), version);
}

}  // namespace corbd::kms::vault
