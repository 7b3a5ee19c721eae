// Whether an agent answers on its admin socket. gRPC gives the same error for every failure to connect.
#pragma once

#include <string>

#include "corbd/core/result.hpp"

namespace corbd::cli {

/// <runtime_dir>/admin.sock, absolute: gRPC takes no other.
std::string admin_socket(const std::string& runtime_dir);
/// not_found, unavailable or permission_denied, with the socket and the way out.
result<> look_for_agent(const std::string& socket);

}  // namespace corbd::cli
