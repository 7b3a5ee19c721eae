#include "vault.hpp"

#include <algorithm>

#include "corbd/core/secret_json.hpp"
#include "corbd/core/text.hpp"
#include "json_answer.hpp"

namespace corbd::kms::vault {
namespace {

namespace json = boost::json;

constexpr const char* kPodToken = "/var/run/secrets/kubernetes.io/serviceaccount/token";
constexpr std::size_t kMountsBytes = 1 << 20;  // one of some hundred engines has 1 KiB, twice
constexpr std::size_t kShownBytes = 200;

std::string text_in(const JsonAnswer* object, std::string_view key) {
  const auto* value = object == nullptr ? nullptr : object->find(key);
  return value != nullptr ? value->text : std::string();
}

Error unreadable(const std::string& doing, const std::string& what) {
  return {errc::state_corrupt, doing + ": the answer has no " + what};
}

/// Whether Vault itself says that there is no secret: no errors, or the data of a deleted one. A proxy's 404 does not
/// count.
bool says_none(const http::Reply& reply, const JsonAnswer& body) {
  const auto* errors = body.find("errors");
  const bool no_errors = errors != nullptr && errors->is == JsonAnswer::Is::list && errors->inside.empty();
  return reply.status == 404 && (no_errors || body.object_at({"data", "metadata"}) != nullptr);
}

std::string escaped_path(std::string_view path) { return percent_encoded(path, "/"); }

/// Checks a token, which goes into a header that a line end would terminate.
result<Secret> clean_token(const Secret& token, const std::string& of) {
  const auto text = trimmed(token.reveal());
  const bool clean = std::ranges::all_of(text, [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (clean && !text.empty()) return Secret(std::string(text));
  return Error{errc::failed_precondition, of + " is no token: it is empty, or has bytes that a header cannot have"};
}

}  // namespace

std::string said(const http::Reply& reply) {
  const auto parsed = JsonAnswer::parse(reply.body);
  const auto* errors = parsed.find("errors");
  std::string text = std::to_string(reply.status);
  if (errors == nullptr || errors->is != JsonAnswer::Is::list) return text;
  for (const auto& one : errors->inside) {
    if (one.is != JsonAnswer::Is::text || text.size() > kShownBytes) continue;
    std::string line(trimmed(std::string_view(one.text)).substr(0, kShownBytes));
    for (char& c : line)
      if (c < 0x20 || c > 0x7e) c = ' ';
    text += " " + line;
  }
  return text;
}

Error refused(const std::string& doing, const http::Reply& reply) {
  const std::string text = doing + ": Vault answered " + said(reply);
  switch (reply.status) {
    case 400:
    case 401:
    case 403:
      return {errc::permission_denied, text + ": check the role, the policy and the token"};
    case 404:
      return {errc::failed_precondition,
              text + ": there is no secrets engine or login at that path: correct vaultBackendPath or vaultAuthPath"};
    case 503:
      return {errc::unavailable, text + ": unseal it, or wait until it is up"};
    case 408:
    case 429:
    case 472:
    case 473:
      return {errc::unavailable, text};
    default:
      if (reply.status >= 500) return {errc::unavailable, text};
      return {errc::failed_precondition, text + ": vaultAddress must name a server that answers by itself"};
  }
}

http::Message request_of(std::string method, std::string target, const Secret& token, const std::string& name_space) {
  http::Message message;
  message.method = std::move(method);
  message.target = std::move(target);
  message.headers = {{"Accept", "application/json"}, {"X-Vault-Request", "true"}};
  if (message.method == "PUT") message.headers.emplace_back("Content-Type", "application/json");
  if (!name_space.empty()) message.headers.emplace_back("X-Vault-Namespace", name_space);
  message.bearer = token;
  message.limit = kAnswerBytes;
  return message;
}

std::string login_body(std::string_view role, const Secret& account_token) {
  json::object body{{"role", json::string_view(role.data(), role.size())}, {"jwt", json_view(account_token)}};
  auto made = serialize_secret(body);
  wipe(body);
  return made;
}

result<Secret> token_in(const http::Reply& reply, const std::string& doing) {
  if (reply.status / 100 != 2) return refused(doing, reply);
  const auto parsed = JsonAnswer::parse(reply.body);
  Secret token(text_in(parsed.at({"auth"}), "client_token"));
  if (token.empty()) return unreadable(doing, "auth.client_token");
  return clean_token(token, doing + ": the answer");
}

result<bool> is_v2_in(const http::Reply& reply, const std::string& backend_path, const std::string& doing) {
  if (reply.status / 100 != 2) return refused(doing, reply);
  const auto parsed = JsonAnswer::parse(reply.body);
  const auto* mounts = parsed.object_at({"data"});
  if (mounts == nullptr) mounts = parsed.object_at({});
  if (mounts == nullptr) return unreadable(doing, "mounts");
  const std::string wanted = join_path({backend_path});
  for (const auto& mount : mounts->inside)
    if (join_path({mount.name}) == wanted && mount.is == JsonAnswer::Is::object)
      return text_in(mount.at({"options"}), "version") == "2";
  return Error{errc::failed_precondition,
               doing + ": there is no secrets engine at " + printable(backend_path) + ": correct vaultBackendPath"};
}

/// Reads {"data": {"passphrase": KEY}} as ceph-csi writes it; version 2 has it below another "data".
result<Stored> stored_in(const http::Reply& reply, bool is_v2, const std::string& doing) {
  const auto parsed = JsonAnswer::parse(reply.body);
  const bool found = reply.status / 100 == 2;
  if (!found && !says_none(reply, parsed)) return refused(doing, reply);
  Stored stored;
  if (is_v2) stored.version = 0;
  const auto* version = parsed.at({"data", "metadata", "version"});
  if (is_v2 && version != nullptr && version->count) stored.version = *version->count;
  if (!found) return stored;
  const auto* secret = is_v2 ? parsed.at({"data", "data", "data"}) : parsed.at({"data", "data"});
  Secret passphrase(text_in(secret, "passphrase"));
  if (passphrase.empty()) return unreadable(doing, "data.passphrase, which ceph-csi writes there");
  stored.key = std::move(passphrase);
  return stored;
}

std::string write_body(const Secret& passphrase, std::optional<std::uint64_t> version) {
  json::object secret{{"data", json::object{{"passphrase", json_view(passphrase)}}}};
  json::object body = version ? json::object{{"options", json::object{{"cas", *version}}}, {"data", secret}} : secret;
  auto made = serialize_secret(body);
  wipe(secret);
  wipe(body);
  return made;
}

namespace {

result<> written_in(const http::Reply& reply, const std::string& doing) {
  if (reply.status / 100 == 2) return {};
  // The stored key may be this very key, from a request whose answer was lost: a caller that repeats reads it first.
  if (reply.status == 400 && said(reply).find("check-and-set") != std::string::npos)
    return Error{errc::unavailable, doing + ": it answered " + said(reply) + ": another write came first, repeat"};
  return refused(doing, reply);
}

/// A conversation with one server for one volume.
class Session {
 public:
  Session(Login login, Transport& transport, KeyCall ask)
      : login_(login), transport_(transport), ask_(std::move(ask)) {}

  /// Logs in, and learns the version of the secrets engine.
  task<result<>> open();
  task<result<Stored>> read();
  task<result<>> write(Secret key, std::optional<std::uint64_t> version);

 private:
  std::string at_server() const { return "KMS \"" + printable(ask_.kms_id) + "\" at " + url_.peer.text(); }
  task<result<Unread>> send(http::Message message);
  task<result<>> configure();
  task<result<>> read_certificates();
  task<result<std::string>> certificate(std::string secret, std::string field);
  task<result<Secret>> account_token();
  task<result<>> log_in(std::string name_space);
  task<result<>> take_tenants_token();
  task<result<>> find_version();
  result<std::string> tenant() const;
  std::string key_target() const { return "/v1/" + escaped_path(key_path(settings_, is_v2_, ask_.owner.volume_id)); }

  const Login login_;
  Transport& transport_;
  const KeyCall ask_;
  Settings settings_;
  Url url_;
  Secret token_;
  bool is_v2_ = false;
};

task<result<Unread>> Session::send(http::Message message) {
  message.target = url_.path + message.target;
  return transport_.http(url_.peer, std::move(message), ask_.until);
}

result<std::string> Session::tenant() const {
  if (!ask_.owner.tenant.empty()) return ask_.owner.tenant;
  return Error{errc::failed_precondition,
               "the namespace of the claim of volume " + printable(ask_.owner.volume_id) + " is not known, and KMS \"" +
                   printable(ask_.kms_id) +
                   "\" needs it: only a volume of a provisioner with "
                   "--extra-create-metadata has it, or one with csi.storage.k8s.io/pvc/namespace in its attributes"};
}

/// Reads the section, then the tenant's own ConfigMap.
task<result<>> Session::configure() {
  auto settings = read_settings(login_, ask_.section, printable(ask_.kms_id));
  if (!settings) co_return settings.error();
  settings_ = std::move(*settings);
  if (login_ != Login::pod && !ask_.owner.tenant.empty() && !settings_.tenant_config.empty()) {
    const auto theirs = co_await transport_.config_map(ask_.owner.tenant, settings_.tenant_config, ask_.until);
    if (!theirs && theirs.error().code != errc::not_found) co_return theirs.error();
    if (theirs)
      if (auto applied = apply_tenant(login_, *theirs, printable(ask_.kms_id), settings_); !applied)
        co_return with_context("ConfigMap " + ask_.owner.tenant + "/" + settings_.tenant_config, applied.error());
  }
  const auto url = parse_url(settings_.address);
  if (!url) co_return Error{errc::internal, "an address of a KMS was not checked"};
  url_ = *url;
  url_.peer.name = settings_.server_name;
  url_.peer.insecure = !settings_.verify;
  co_return co_await read_certificates();
}

/// Reads the tenant's Secret of that name, or ours.
task<result<std::string>> Session::certificate(std::string secret, std::string field) {
  result<std::map<std::string, Secret>> found = Error{errc::not_found, ""};
  std::string place = ask_.owner.tenant;
  if (!place.empty()) found = co_await transport_.secret(place, secret, ask_.until);
  if (!found && found.error().code == errc::not_found) {
    place = transport_.own_namespace();
    if (place.empty())
      co_return Error{errc::failed_precondition, "Secret " + secret + " of KMS \"" + printable(ask_.kms_id) +
                                                     "\" is in no namespace that is known here"};
    found = co_await transport_.secret(place, secret, ask_.until);
  }
  if (!found) co_return found.error();
  const auto entry = found->find(field);
  if (entry == found->end())
    co_return Error{errc::failed_precondition,
                    "Secret " + place + "/" + secret + " has no field " + field + ": add it"};
  co_return std::string(entry->second.reveal());
}

task<result<>> Session::read_certificates() {
  auto& peer = url_.peer;
  if (login_ == Login::pod) {
    if (settings_.ca_secret.empty()) co_return result<>();
    const auto field = ask_.secrets.find(settings_.ca_secret);
    if (field == ask_.secrets.end())
      co_return Error{errc::failed_precondition,
                      "the node-stage secret has no field " + printable(settings_.ca_secret) +
                          ", which vaultCAFromSecret of KMS \"" + printable(ask_.kms_id) + "\" names: add it"};
    peer.authorities = field->second.reveal();
    co_return result<>();
  }
  if (!settings_.ca_secret.empty()) {
    auto authorities = co_await certificate(settings_.ca_secret, "cert");
    if (!authorities) co_return authorities.error();
    peer.authorities = std::move(*authorities);
  }
  if (!settings_.certificate_secret.empty()) {
    auto own = co_await certificate(settings_.certificate_secret, "cert");
    if (!own) co_return own.error();
    peer.certificate = std::move(*own);
  }
  if (!settings_.key_secret.empty()) {
    auto key = co_await certificate(settings_.key_secret, "key");
    if (!key) co_return key.error();
    peer.key = Secret(std::move(*key));
  }
  co_return result<>();
}

task<result<Secret>> Session::account_token() {
  if (login_ == Login::pod) co_return co_await transport_.file(kPodToken, ask_.until);
  const auto owner = tenant();
  if (!owner) co_return owner.error();
  co_return co_await transport_.account_token(*owner, settings_.tenant_account, {}, ask_.until);
}

task<result<>> Session::log_in(std::string name_space) {
  const auto account = co_await account_token();
  if (!account) co_return account.error();
  const auto clean = clean_token(*account, "what proves the service account to KMS \"" + printable(ask_.kms_id) + "\"");
  if (!clean) co_return clean.error();
  const std::string path = join_path({"auth", settings_.auth_mount, "login"});
  auto message = request_of("PUT", "/v1/" + escaped_path(path), {}, name_space);
  message.body = login_body(settings_.role, *clean);
  auto reply = co_await send(std::move(message));
  if (!reply) co_return reply.error();
  auto token = co_await transport_.read(
      std::move(*reply), ask_.until, token_in,
      "logging in to " + at_server() + " at " + path + " with the role " + printable(settings_.role));
  if (!token) co_return token.error();
  token_ = std::move(*token);
  co_return result<>();
}

task<result<>> Session::take_tenants_token() {
  const auto owner = tenant();
  if (!owner) co_return owner.error();
  const auto found = co_await transport_.secret(*owner, settings_.tenant_token, ask_.until);
  if (!found) co_return found.error();
  const std::string place = "Secret " + *owner + "/" + settings_.tenant_token;
  const auto entry = found->find("token");
  if (entry == found->end()) co_return Error{errc::failed_precondition, place + " has no field token: add it"};
  auto clean = clean_token(entry->second, "the field token of " + place);
  if (!clean) co_return clean.error();
  token_ = std::move(*clean);
  co_return result<>();
}

task<result<>> Session::find_version() {
  is_v2_ = settings_.backend == "kv-v2";
  if (is_v2_ || settings_.backend == "kv") co_return result<>();
  auto message = request_of("GET", "/v1/sys/mounts", token_, settings_.auth_namespace);
  message.limit = kMountsBytes;
  auto reply = co_await send(std::move(message));
  if (!reply) co_return reply.error();
  const auto found = co_await transport_.read(
      std::move(*reply), ask_.until, is_v2_in, settings_.backend_path,
      "listing the secrets engines of " + at_server() + ", because vaultBackend is neither kv nor kv-v2");
  if (!found) co_return found.error();
  is_v2_ = *found;
  co_return result<>();
}

/// Logs in for the setup, and again if the keys are in another namespace, as ceph-csi's library does.
task<result<>> Session::open() {
  auto done = co_await configure();
  if (!done) co_return done;
  if (login_ == Login::token)
    done = co_await take_tenants_token();
  else
    done = co_await log_in(settings_.auth_namespace);
  if (!done) co_return done;
  done = co_await find_version();
  if (done && login_ != Login::token && settings_.name_space != settings_.auth_namespace)
    done = co_await log_in(settings_.name_space);
  co_return done;
}

task<result<Stored>> Session::read() {
  auto reply = co_await send(request_of("GET", key_target(), token_, ""));
  if (!reply) co_return reply.error();
  co_return co_await transport_.read(std::move(*reply), ask_.until, stored_in, is_v2_,
                                     "reading " + key_target() + " from " + at_server());
}

task<result<>> Session::write(Secret key, std::optional<std::uint64_t> version) {
  if (is_v2_ != version.has_value())
    co_return Error{errc::unavailable,
                    at_server() + " has another version of KV than when the key was read: repeat it"};
  auto message = request_of("PUT", key_target(), token_, "");
  message.stores = true;
  message.body = write_body(key, version);
  auto reply = co_await send(std::move(message));
  if (!reply) co_return reply.error();
  co_return co_await transport_.read(std::move(*reply), ask_.until, written_in,
                                     "writing " + key_target() + " to " + at_server());
}

}  // namespace

task<result<Stored>> fetch_by(Login login, Transport& transport, KeyCall ask) {
  Session session(login, transport, std::move(ask));
  const auto opened = co_await session.open();
  if (!opened) co_return opened.error();
  co_return co_await session.read();
}

task<result<>> store_by(Login login, Transport& transport, KeyCall ask, Secret key,
                        std::optional<std::uint64_t> version) {
  Session session(login, transport, std::move(ask));
  const auto opened = co_await session.open();
  if (!opened) co_return opened.error();
  co_return co_await session.write(std::move(key), version);
}

}  // namespace corbd::kms::vault
