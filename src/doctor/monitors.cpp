#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "corbd/core/fd.hpp"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

constexpr int kEachMs = 2000;
constexpr std::chrono::seconds kAll{10};
constexpr std::size_t kThreads = 16;

struct Free {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

bool connects(const addrinfo& address) {
  const Fd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return false;
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd wait{fd.get(), POLLOUT, 0};
  if (::poll(&wait, 1, kEachMs) != 1) return false;
  int failed = 0;
  socklen_t length = sizeof failed;
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failed, &length) == 0 && failed == 0;
}

bool answers(const Endpoint& endpoint) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(), &wanted, &found) != 0) return false;
  const std::unique_ptr<addrinfo, Free> list(found);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next)
    if (connects(*one)) return true;
  return false;
}

/// Threads that may outlive the question share this: resolving a name has no time limit of its own.
struct Round {
  std::vector<std::pair<std::size_t, Endpoint>> all;  ///< with the index of the monitor
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> answered;  ///< by the monitor's index
  std::size_t ended = 0;
};

void ask_some(const std::shared_ptr<Round>& asking) {
  for (std::size_t i = asking->next++; i < asking->all.size(); i = asking->next++) {
    const auto& [monitor, endpoint] = asking->all.at(i);
    const bool yes = answers(endpoint);
    const std::lock_guard guard(asking->mutex);
    if (yes) asking->answered.at(monitor) = true;
    ++asking->ended;
    asking->changed.notify_all();
  }
}

}  // namespace

void ask_monitors(std::vector<Monitor>& monitors) {
  const auto asking = std::make_shared<Round>();
  for (std::size_t i = 0; i < monitors.size(); ++i)
    for (auto& endpoint : endpoints_of(monitors.at(i).text)) asking->all.emplace_back(i, std::move(endpoint));
  asking->answered.resize(monitors.size());
  for (std::size_t i = 0; i < std::min(kThreads, asking->all.size()); ++i) std::thread(ask_some, asking).detach();
  std::unique_lock lock(asking->mutex);
  asking->changed.wait_for(lock, kAll, [&] { return asking->ended == asking->all.size(); });
  for (std::size_t i = 0; i < monitors.size(); ++i) monitors.at(i).answers = asking->answered.at(i);
}

}  // namespace corbd::doctor
