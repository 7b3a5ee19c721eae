#include "corbd/kube/answer.hpp"

#include <algorithm>
#include <stdexcept>

#include "wire.hpp"

namespace corbd::kube {
namespace {

namespace json = boost::json;

constexpr std::size_t kShown = 300;
constexpr std::chrono::minutes kLongestRetry{5};  // bound for the server's wish: its own longest is half a minute

/// The fields of a body that is a Status object.
struct Status {
  bool is_one = false;
  std::string reason, message, cause, resource, name;
  std::optional<std::chrono::seconds> retry_after;
};

std::string text_at(const json::object& object, const char* key) {
  const auto* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::string printable(std::string text) {
  if (text.size() > kShown) text.resize(kShown);
  for (char& c : text)
    if (c < 0x20 || c > 0x7e) c = ' ';
  return text;
}

Status read_status(std::string_view body) {
  Status status;
  const auto parsed = parse_object(body, "");
  if (!parsed) {
    status.message = printable(std::string(body.substr(0, kShown)));
    return status;
  }
  const auto& object = *parsed;
  status.is_one = text_at(object, "kind") == "Status";
  status.reason = printable(text_at(object, "reason"));
  status.message = printable(text_at(object, "message"));
  const auto* details = object.if_contains("details");
  if (details == nullptr || !details->is_object()) return status;
  status.resource = text_at(details->get_object(), "kind");
  status.name = text_at(details->get_object(), "name");
  if (const auto* seconds = details->get_object().if_contains("retryAfterSeconds");
      seconds != nullptr && seconds->is_int64())
    status.retry_after = std::chrono::seconds(seconds->get_int64());
  const auto* causes = details->get_object().if_contains("causes");
  if (causes != nullptr && causes->is_array() && !causes->get_array().empty() &&
      causes->get_array().front().is_object())
    status.cause = text_at(causes->get_array().front().get_object(), "reason");
  return status;
}

/// Compares "volumeattachments.storage.k8s.io" by its part "volumeattachments".
bool is_about(const Status& says, const Verb& verb) {
  return says.reason == "NotFound" && !verb.name.empty() && says.name == verb.name &&
         says.resource == verb.resource.substr(0, verb.resource.find('.'));
}

errc code_of(unsigned status, const Status& says, const Verb& verb) {
  // A proxy may refuse the token, too. Another token is read then, and nothing is concluded.
  if (status == 401) return errc::unauthenticated;
  if (!says.is_one) return errc::unavailable;
  switch (status) {
    case 400:
    case 422:
      return errc::invalid_argument;
    case 403:
      return errc::permission_denied;
    case 404:
      // For a create the namespace is missing, and no repeat creates it.
      if (verb.verb == "create") return errc::failed_precondition;
      return is_about(says, verb) ? errc::not_found : errc::unavailable;
    case 409:
      return errc::already_exists;
    default:
      return errc::unavailable;
  }
}

ApiError::Kind kind_of(unsigned status, const Status& says) {
  if (status == 429) return ApiError::Kind::throttled;
  if (!says.is_one) return ApiError::Kind::other;
  if (status == 410) return ApiError::Kind::expired;
  return status == 504 && says.cause == "ResourceVersionTooLarge" ? ApiError::Kind::too_new : ApiError::Kind::other;
}

std::string remedy(unsigned status, const Status& says, const Verb& verb) {
  if (status == 401) return ": it does not accept the agent's token or certificate";
  if (status == 403 && says.is_one)
    return ": grant the verb '" + verb.verb + "' on '" + verb.resource + "' to the agent's service account";
  if (status == 404 && !verb.name.empty() && !(says.is_one && is_about(says, verb)))
    return ": that says nothing about " + verb.name + ". Look at what is between this node and the API server";
  return "";
}

}  // namespace

void throw_exception_from_error(const ApiError& failure, const boost::source_location&) {
  throw std::runtime_error(failure.error.text);
}

ApiError api_error(unsigned status, std::string_view body, std::optional<std::chrono::seconds> retry_after,
                   const Verb& verb, std::string_view target) {
  const Status says = read_status(body);
  ApiError failure;
  failure.retry_after = retry_after ? retry_after : says.retry_after;
  if (failure.retry_after)
    failure.retry_after =
        std::clamp<std::chrono::seconds>(*failure.retry_after, std::chrono::seconds(0), kLongestRetry);
  failure.kind = kind_of(status, says);
  std::string text =
      "the API server answered " + verb.verb + " " + std::string(target) + " with " + std::to_string(status);
  if (!says.reason.empty()) text += " " + says.reason;
  if (!says.message.empty()) text += ": " + says.message;
  failure.error = {code_of(status, says, verb), text + remedy(status, says, verb)};
  return failure;
}

ApiError api_error(Error error) {
  ApiError failure;
  failure.error = std::move(error);
  return failure;
}

}  // namespace corbd::kube
