#include "key_protect.hpp"

#include <boost/json/array.hpp>

#include "corbd/core/base64.hpp"
#include "corbd/core/secret_json.hpp"
#include "corbd/core/text.hpp"
#include "json_answer.hpp"
#include "section.hpp"
#include "service.hpp"

namespace corbd::kms::key_protect {
namespace {

namespace json = boost::json;

/// Returns a URL of the section, or keyprotect-go-client's own. An empty one counts as none. Credentials go there, so
/// it must be https.
result<Url> key_protect_url(const Section& section, std::string_view key, const std::string& otherwise,
                            const std::string& id) {
  const auto text = text_option(section, key, id);
  if (!text) return text.error();
  auto url = parse_url(text->value_or("").empty() ? otherwise : **text);
  if (!url || !url->peer.tls)
    return Error{errc::failed_precondition,
                 "KMS \"" + id + "\": " + std::string(key) +
                     " is not the URL of a server, https://HOST: correct it in the KMS config"};
  return std::move(*url);
}

result<Url> base_url(const Section& section, const std::string& id) {
  return key_protect_url(section, "IBM_KP_BASE_URL", "https://us-south.kms.cloud.ibm.com", id);
}

result<Url> token_url(const Section& section, const std::string& id) {
  return key_protect_url(section, "IBM_KP_TOKEN_URL", "https://iam.cloud.ibm.com/oidc/token", id);
}

/// Reads {"resources": [{"errorMsg": ...}]} unchanged, because it contains no secret.
std::string key_protect_said(const http::Reply& reply) {
  const auto from = reply.body.find("\"errorMsg\"");
  return from == reply.body.npos ? std::string() : reply.body.substr(from, 240);
}

result<Secret> iam_token_in(const http::Reply& reply, const Call& call) {
  return access_token(reply, call,
                      error_text(words_at(reply.body, {"errorCode"}), words_at(reply.body, {"errorMessage"})));
}

result<Secret> key_protect_answer(const http::Reply& reply, const std::string& member, const Call& call) {
  // INVALID_FIELD_ERR: this root key did not wrap the ciphertext, or not with this volume's ID.
  if (reply.status == 422 || reply.body.find("`ciphertext`") != reply.body.npos)
    return wrapped_elsewhere(call, key_protect_said(reply));
  if (reply.status / 100 != 2) return refusal(call, refusal_code(reply.status), reply.status, key_protect_said(reply));
  auto found = json_text(reply.body, {member});
  if (!found || found->empty()) return wrong_shape(call);
  return std::move(*found);
}

task<result<Secret>> iam_token(Transport& transport, KeyCall ask, Credentials own, std::string doing) {
  const auto url = token_url(ask.section, ask.kms_id);
  if (!url) co_return url.error();
  const auto api_key = own.need("IBM_KP_SERVICE_API_KEY", doing);
  if (!api_key) co_return api_key.error();
  http::Message message;
  message.method = "POST";
  message.target = url->path.empty() ? "/" : url->path;
  message.headers = {{"Content-Type", "application/x-www-form-urlencoded"}, {"Accept", "application/json"}};
  message.limit = kAnswerBytes;
  message.body =
      form_encoded({{"grant_type", "urn:ibm:params:oauth:grant-type:apikey"}, {"apikey", api_key->reveal()}});
  auto reply = co_await transport.http(url->peer, std::move(message), ask.until);
  if (!reply) co_return with_context(doing, reply.error());
  co_return co_await transport.read(std::move(*reply), ask.until, iam_token_in,
                                    call_of(ask, doing, url->peer, own.where));
}

/// Calls the root key's action wrap or unwrap, and returns the answer's `member`.
task<result<Secret>> ask_key_protect(Transport& transport, KeyCall ask, std::string action, json::object body,
                                     std::string member, std::string doing) {
  const auto url = base_url(ask.section, ask.kms_id);
  if (!url) co_return url.error();
  const auto instance = needed_option(ask.section, "IBM_KP_SERVICE_INSTANCE_ID", ask.kms_id);
  if (!instance) co_return instance.error();
  const auto own = co_await own_credentials(transport, ask, "IBM_KP_SECRET_NAME", "ceph-csi-kp-credentials", doing);
  if (!own) co_return own.error();
  const auto root = own->need("IBM_KP_CUSTOMER_ROOT_KEY", doing);
  if (!root) co_return root.error();
  auto token = co_await iam_token(transport, ask, *own, doing);
  if (!token) co_return token.error();
  // ceph-csi binds the wrapped key to its volume.
  body["aad"] = json::array{ask.owner.volume_id};
  http::Message message;
  message.method = "POST";
  message.target = url->path + "/api/v2/keys/" + form_encoded({{"", root->reveal()}}) + "/actions/" + action;
  message.headers = {{"Accept", "application/json"}, {"Bluemix-Instance", *instance}};
  message.bearer = std::move(*token);
  message.body = serialize_secret(body);
  wipe(body);
  message.limit = kAnswerBytes;
  auto reply = co_await transport.http(url->peer, std::move(message), ask.until);
  if (!reply) co_return with_context(doing, reply.error());
  co_return co_await transport.read(std::move(*reply), ask.until, key_protect_answer, member,
                                    call_of(ask, doing, url->peer, own->where));
}

}  // namespace

result<> check(const Section& section, const std::string& id) {
  if (const auto instance = needed_option(section, "IBM_KP_SERVICE_INSTANCE_ID", id); !instance)
    return instance.error();
  if (const auto name = text_option(section, "IBM_KP_SECRET_NAME", id); !name) return name.error();
  if (const auto url = base_url(section, id); !url) return url.error();
  if (const auto url = token_url(section, id); !url) return url.error();
  return {};
}

task<result<Secret>> unwrap(Transport& transport, KeyCall ask, std::string wrapped) {
  const std::string doing = about(ask, "unwrapping");
  const auto ciphertext = from_base64(trimmed(wrapped));
  if (!ciphertext || ciphertext->empty())
    co_return Error{errc::state_corrupt, doing +
                                             ": its key in the image's metadata is not base64, as ceph-csi writes "
                                             "it with Key Protect; nothing was changed"};
  json::object body{{"ciphertext", *ciphertext}};
  // The plaintext is the volume's key itself, as base64: ceph-csi decodes it neither before nor after.
  co_return co_await ask_key_protect(transport, ask, "unwrap", std::move(body), "plaintext", doing);
}

task<result<std::string>> wrap(Transport& transport, KeyCall ask, Secret key) {
  const std::string doing = about(ask, "wrapping");
  if (!from_base64(key.reveal()))
    co_return Error{errc::invalid_argument, doing +
                                                ": Key Protect wraps only what is base64 with + and /, and ceph-csi "
                                                "could not unwrap another form of the key: choose another key"};
  json::object body{{"plaintext", json_view(key)}};
  const auto ciphertext = co_await ask_key_protect(transport, ask, "wrap", std::move(body), "ciphertext", doing);
  if (!ciphertext) co_return ciphertext.error();
  co_return to_base64(ciphertext->reveal());
}

}  // namespace corbd::kms::key_protect
