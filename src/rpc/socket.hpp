// The unix socket of a server.
#pragma once

#include <string>

#include "corbd/core/result.hpp"

namespace corbd::rpc {

/// Turns "unix:///a/b.sock" into "/a/b.sock"; invalid_argument for any other kind.
result<std::string> socket_path(const std::string& endpoint);
/// Makes the folder, and removes a socket on which nobody answers. in_use: somebody answers.
result<> prepare_socket(const std::string& path);

}  // namespace corbd::rpc
