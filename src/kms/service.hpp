// Common parts of the KMS types that are a cloud's service: credentials, forms, answers.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "types.hpp"

namespace corbd::kms {

/// Makes "unwrapping the key of volume y", for an error's text.
std::string about(const KeyCall& ask, std::string_view doing);

/// A Kubernetes Secret with the credentials for a KMS.
struct Credentials {
  std::string where;  ///< "Secret ns/name"
  std::map<std::string, Secret> values;
  /// Returns the value without white space at its ends; empty if it is missing.
  Secret get(const std::string& key) const;
  /// failed_precondition names the Secret and the key.
  result<Secret> need(const std::string& key, const std::string& doing) const;
};
task<result<Credentials>> read_credentials(Transport& transport, std::string name_space, std::string name,
                                           std::string doing, Until until);
/// Reads the Secret in our own namespace whose name the section has at `option`.
task<result<Credentials>> own_credentials(Transport& transport, KeyCall ask, std::string option, std::string otherwise,
                                          std::string doing);

/// Encodes application/x-www-form-urlencoded. A field without a name is its value alone.
std::string form_encoded(std::initializer_list<std::pair<std::string_view, std::string_view>> fields);

/// Returns the text at that path of a JSON answer; nothing for an answer of another shape.
std::optional<Secret> json_text(std::string_view body, std::initializer_list<std::string_view> path);
/// Does the same for text that is no secret: the words of a refusal.
std::string words_at(std::string_view body, std::initializer_list<std::string_view> path);

/// Makes "AccessDenied: no such key"; only one of them if the service gives no more.
std::string error_text(std::string_view name, std::string_view words);

/// Parts of the text of an error about an answer.
struct Call {
  std::string doing;   ///< see about()
  std::string server;  ///< KMS "x" at host:443
  std::string where;   ///< the credentials, see Credentials::where
};
Call call_of(const KeyCall& ask, const std::string& doing, const http::Peer& peer, const std::string& where);

/// Returns the code for the status of a refusal.
errc refusal_code(unsigned status);
/// `said`: the service's own words.
Error refusal(const Call& call, errc code, unsigned status, std::string_view said);
/// Makes the error for an answer that lacks what its API promises.
Error wrong_shape(const Call& call);
/// Makes the error for a wrapped key in the image's metadata that the KMS cannot unwrap.
Error wrapped_elsewhere(const Call& call, std::string_view said);

/// Returns the access_token of an answer to OAuth's token request. `said`: its words, if it is a refusal.
result<Secret> access_token(const http::Reply& reply, const Call& call, std::string_view said);

}  // namespace corbd::kms
