#include "service.hpp"

#include "corbd/core/text.hpp"
#include "json_answer.hpp"
#include "section.hpp"

namespace corbd::kms {
namespace {

/// Returns at most 240 bytes of a service's words.
std::string quoted_words(std::string_view said) {
  std::string shown;
  for (std::size_t at = 0; at < said.size() && at < 240; at += 60) shown += printable(said.substr(at, 60));
  return shown;
}

std::string way_out(errc code, const std::string& where) {
  switch (code) {
    case errc::unauthenticated:
      return "check the credentials in " + where;
    case errc::permission_denied:
      return "allow it to the identity in " + where;
    case errc::unavailable:
      return "it is tried again";
    default:
      return "check the KMS config and " + where;
  }
}

}  // namespace

std::string about(const KeyCall& ask, std::string_view doing) {
  return std::string(doing) + " the key of volume " + printable(ask.owner.volume_id);
}

Secret Credentials::get(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? Secret() : Secret(std::string(trimmed(found->second.reveal())));
}

result<Secret> Credentials::need(const std::string& key, const std::string& doing) const {
  auto found = get(key);
  if (found.empty()) return Error{errc::failed_precondition, doing + ": " + where + " has no " + key + ": add it"};
  return found;
}

task<result<Credentials>> read_credentials(Transport& transport, std::string name_space, std::string name,
                                           std::string doing, Until until) {
  const std::string where = "Secret " + printable(name_space) + "/" + printable(name);
  auto read = co_await transport.secret(name_space, name, until);
  if (read) co_return Credentials{where, std::move(*read)};
  Error error = with_context(doing + ": reading " + where, read.error());
  // To a caller of CSI, not_found would mean the volume.
  if (error.code == errc::not_found) error.code = errc::failed_precondition;
  co_return error;
}

task<result<Credentials>> own_credentials(Transport& transport, KeyCall ask, std::string option, std::string otherwise,
                                          std::string doing) {
  const auto named = text_option(ask.section, option, ask.kms_id);
  if (!named) co_return named.error();
  const std::string own = transport.own_namespace();
  if (own.empty())
    co_return Error{errc::failed_precondition,
                    doing + ": the namespace of its Secret is not known: set POD_NAMESPACE to this pod's namespace"};
  co_return co_await read_credentials(transport, own, named->value_or(otherwise), doing, ask.until);
}

std::string form_encoded(std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
  std::string text;
  // Reserve the most, because a field may be a secret, and a text that grows would leave it behind.
  std::size_t most = 0;
  for (const auto& [name, value] : fields) most += name.size() + 3 * value.size() + 2;
  text.reserve(most);
  for (const auto& [name, value] : fields) {
    if (!text.empty()) text += '&';
    if (!name.empty()) text += std::string(name) + "=";
    append_percent_encoded(text, value);
  }
  return text;
}

std::optional<Secret> json_text(std::string_view body, std::initializer_list<std::string_view> path) {
  const auto answer = JsonAnswer::parse(body);
  const auto* found = answer.at(path);
  if (found == nullptr || found->is != JsonAnswer::Is::text) return std::nullopt;
  return Secret(found->text);
}

std::string words_at(std::string_view body, std::initializer_list<std::string_view> path) {
  const auto found = json_text(body, path);
  return found ? std::string(found->reveal()) : std::string();
}

std::string error_text(std::string_view name, std::string_view words) {
  return std::string(name) + (name.empty() || words.empty() ? "" : ": ") + std::string(words);
}

Call call_of(const KeyCall& ask, const std::string& doing, const http::Peer& peer, const std::string& where) {
  return {doing, "KMS \"" + printable(ask.kms_id) + "\" at " + peer.text(), where};
}

errc refusal_code(unsigned status) {
  if (status == 401) return errc::unauthenticated;
  if (status == 403) return errc::permission_denied;
  if (status == 408 || status == 429 || status >= 500) return errc::unavailable;
  return errc::failed_precondition;
}

Error refusal(const Call& call, errc code, unsigned status, std::string_view said) {
  return {code, call.doing + ": " + call.server + " answered " + std::to_string(status) +
                    (said.empty() ? "" : " (" + quoted_words(said) + ")") + ": " + way_out(code, call.where)};
}

Error wrong_shape(const Call& call) {
  return {errc::unavailable, call.doing + ": the answer of " + call.server +
                                 " has not what its API promises: check that the KMS config names that service, and "
                                 "that no proxy answers for it"};
}

Error wrapped_elsewhere(const Call& call, std::string_view said) {
  return {errc::unauthenticated,
          call.doing + ": " + call.server + " did not wrap the key in the image's metadata, or it is damaged (" +
              quoted_words(said) + "); nothing was changed: check which key the KMS config names"};
}

result<Secret> access_token(const http::Reply& reply, const Call& call, std::string_view said) {
  // A token endpoint answers 400 to unknown credentials.
  const errc code = reply.status == 400 ? errc::unauthenticated : refusal_code(reply.status);
  if (reply.status != 200) return refusal(call, code, reply.status, said);
  auto token = json_text(reply.body, {"access_token"});
  if (!token || token->empty()) return wrong_shape(call);
  return std::move(*token);
}

}  // namespace corbd::kms
