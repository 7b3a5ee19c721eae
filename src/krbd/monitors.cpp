#include "monitors.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "add_line.hpp"

namespace corbd::krbd {
namespace {

/// The parts of "v2:mon.a:3300/0".
struct Endpoint {
  std::string protocol, host, rest;
};

Endpoint endpoint_of(std::string_view text) {
  Endpoint parts;
  if (text.starts_with("v1:") || text.starts_with("v2:")) {
    parts.protocol = text.substr(0, 3);
    text.remove_prefix(3);
  }
  const auto end = std::min(text.find_first_of(":/"), text.size());
  parts.host = text.substr(0, end);
  parts.rest = text.substr(end);
  return parts;
}

/// Whether the host is a name, and neither "10.0.0.1", "[fd00::1]" nor "fd00::1".
bool has_name(const Endpoint& endpoint) {
  in_addr four{};
  const bool six = endpoint.host.starts_with('[') || endpoint.rest.find(':', 1) != std::string::npos;
  return !endpoint.host.empty() && !six && ::inet_pton(AF_INET, endpoint.host.c_str(), &four) != 1;
}

struct Free {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

}  // namespace

result<std::vector<std::string>> look_up_host(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failed = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found); failed != 0)
    return Error{errc::unavailable, failed == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(failed)};
  const std::unique_ptr<addrinfo, Free> list(found);
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text.data());
  }
  if (addresses.empty()) return Error{errc::unavailable, "it has no address"};
  return addresses;
}

result<std::vector<std::string>> with_addresses(const std::vector<std::string>& monitors, const LookUp& look_up) {
  std::vector<std::string> all;
  std::string unresolved;
  for (const auto& text : each_monitor(monitors)) {
    const Endpoint endpoint = endpoint_of(text);
    if (!has_name(endpoint)) {
      all.push_back(text);
      continue;
    }
    const auto addresses = look_up(endpoint.host);
    if (!addresses) unresolved += (unresolved.empty() ? "" : "; ") + endpoint.host + ": " + addresses.error().text;
    if (!addresses) continue;
    for (const auto& address : *addresses) {
      const bool six = address.find(':') != std::string::npos;
      all.push_back(endpoint.protocol + (six ? "[" + address + "]" : address) + endpoint.rest);
    }
  }
  if (!all.empty() || unresolved.empty()) return all;
  return Error{errc::unavailable,
               "no monitor's name in config.json resolves (" + unresolved +
                   "): check the resolver of the agent; its pod is on the host's network and needs `dnsPolicy: "
                   "ClusterFirstWithHostNet` for names of the cluster"};
}

}  // namespace corbd::krbd
