// Whether an agent answers on its admin socket. gRPC gives the same error for every failure to connect.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "corbd/core/result.hpp"

namespace corbd::cli {

/// Default folders of an agent's socket: corbd's own, and the one in ceph-csi's pod (its keys-tmp-dir).
inline constexpr const char* kRuntimeDirs[] = {"/run/corbd", "/tmp/csi/keys"};

inline constexpr const char* kRuntimeDirHelp =
    "The agent's --runtime-dir, which holds its admin.sock [/run/corbd or /tmp/csi/keys, where an agent answers]";

/// Returns the folder that was given; otherwise the first of kRuntimeDirs where an agent answers, or where one has
/// been.
std::string agents_folder(const std::string& given);
/// Does the same with the check as a parameter. Pure.
std::string agents_folder(const std::string& given, const std::function<result<>(const std::string& folder)>& look);

/// Returns <runtime_dir>/admin.sock as an absolute path: gRPC takes no other.
std::string admin_socket(const std::string& runtime_dir);
/// Errors are not_found, unavailable or permission_denied, with the socket and the way out.
result<> look_for_agent(const std::string& socket);
/// Returns the process that listens there, with the same errors.
result<pid_t> pid_of_agent(const std::string& socket);

}  // namespace corbd::cli
