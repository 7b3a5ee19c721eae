// Messages between the agent and a helper: one JSON object each, on a SOCK_SEQPACKET socket.
//   request {"body": {...}, "busy_file": path or ""}      reply {"reply": {...}} or {"errc": name, "text": sentence}
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/helper_pool.hpp"

namespace corbd::helper_wire {

inline constexpr std::size_t kMaxMessage = 256 * 1024;

/// Number of the socket's descriptor in every helper.
inline constexpr int kHelperSocket = 3;

/// The text may contain a secret: wipe it, and the request's body, too (core/secret.hpp). Replies contain none.
std::string pack_request(const HelperRequest& request);
std::string pack_reply(const result<boost::json::object>& reply);
result<boost::json::object> unpack_reply(std::string_view message);

struct Request {
  boost::json::object body;  ///< lies in wiping_storage()
  std::string busy_file;
};
result<Request> unpack_request(std::string_view message);

/// Sends one message; returns 0 or errno. Never raises SIGPIPE.
int send(int socket, std::string_view message);

enum class Got { message, nothing, closed };
/// Receives one message, with `flags` such as MSG_DONTWAIT. An error of the socket counts as closed.
Got receive(int socket, int flags, std::string& message);

struct Child {
  int pid = 0;
  Fd socket;  ///< non-blocking
  Fd pidfd;
};
result<Child> spawn(const std::string& program, const std::vector<std::string>& arguments);

}  // namespace corbd::helper_wire
