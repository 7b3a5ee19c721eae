// Errors of the API server (docs/sources.md#api-errors). Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "corbd/core/result.hpp"

namespace corbd::kube {

struct ApiError {
  enum class Kind {
    expired,    ///< 410: the server forgot that version; list again
    too_new,    ///< 504: that version has not come yet
    throttled,  ///< 429: try later
    other
  } kind = Kind::other;
  Error error;
  std::optional<std::chrono::seconds> retry_after;  ///< at most five minutes
};

template <class T = void>
using answer = boost::system::result<T, ApiError>;

[[noreturn]] void throw_exception_from_error(const ApiError& failure, const boost::source_location& where);

/// A request in RBAC's terms, for the sentence that says which right to grant.
struct Verb {
  std::string verb, resource;  ///< "get", "volumeattachments.storage.k8s.io"
  std::string name = {};       ///< name of the single object, if any
};

/// `body` is a Status object, or any text. Only a Status is the API server's own answer: any other, such as a proxy's,
/// makes the server unavailable. not_found requires a Status that names the object asked for. `retry_after` is the
/// header's; the Status may have its own.
ApiError api_error(unsigned status, std::string_view body, std::optional<std::chrono::seconds> retry_after,
                   const Verb& verb, std::string_view target);

/// Wraps an error of the transport.
ApiError api_error(Error error);

}  // namespace corbd::kube
