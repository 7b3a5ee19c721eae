// The bytes of a request.
#pragma once

#include "corbd/http/client.hpp"

namespace corbd::http {

/// Checks what Beast does not: it throws for a value beyond 64 KiB, and sends a line end as it is.
result<> check_headers(const Message& message);
/// Builds the request in a string that never moves: it may contain a token and a key. Beast's fields would keep copies
/// of both.
std::string request_of(const Message& message, const Peer& peer);

}  // namespace corbd::http
