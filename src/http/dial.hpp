// Private parts of a Dialer, and the options of a socket.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/http/client.hpp"

namespace corbd::http {

using Context = std::shared_ptr<asio::ssl::context>;
using Addresses = std::vector<std::string>;

/// A job on a pool that several callers wait for.
template <class T>
struct Question {
  Question(const executor& control, Clock& clock) : ended(control, clock) {}
  Event ended;
  std::optional<result<T>> answer;
};

class Dialer::Impl : public std::enable_shared_from_this<Dialer::Impl> {
 public:
  Impl(executor control, Clock& clock, BlockingPool& names, BlockingPool* files, LookUp look_up)
      : control_(std::move(control)), clock_(clock), names_(names), files_(files), look_up_(std::move(look_up)) {}

  /// Returns the addresses of a name. `share`: owner of the look-up, see kLookUpsOfAShare. A caller that leaves ends
  /// nothing.
  static task<result<Addresses>> find(std::shared_ptr<Impl> self, std::string host, std::string share, Until until);
  /// Makes a context without the peer's name, which each connection checks.
  static task<result<Context>> context(std::shared_ptr<Impl> self, Peer peer, Until until);

 private:
  struct Share {
    std::size_t asking = 0;
    std::shared_ptr<Event> one_ended;  ///< null: nobody waits for it
  };
  struct Made {
    Context context;
    time_point at;
  };
  template <class T>
  using Questions = std::map<std::string, std::shared_ptr<Question<T>>>;
  void start_look_up(const std::string& host, const std::string& share);
  void ended(const std::string& share);
  void keep(const std::string& key, Context context);

  executor control_;
  Clock& clock_;
  BlockingPool& names_;
  BlockingPool* const files_;
  const LookUp look_up_;
  Questions<Addresses> names_asked_;
  std::map<std::string, Share> shares_;
  Questions<Context> contexts_asked_;
  std::map<std::string, Made> contexts_;  ///< by the fingerprint of their inputs
};

/// Makes the context from the authorities, the client's certificate and its key, or returns why it cannot. Blocks: it
/// reads the system's authorities, and a stranger may have chosen the others.
result<Context> make_context(const Peer& peer);

/// Makes the kernel notice a peer that vanished, even while nothing is sent. It takes less than a minute, or half of
/// that while a request is out.
inline void keep_alive(int fd) {
  constexpr std::array<std::array<int, 3>, 5> options{{{SOL_SOCKET, SO_KEEPALIVE, 1},
                                                       {IPPROTO_TCP, TCP_KEEPIDLE, 30},
                                                       {IPPROTO_TCP, TCP_KEEPINTVL, 5},
                                                       {IPPROTO_TCP, TCP_KEEPCNT, 5},
                                                       {IPPROTO_TCP, TCP_USER_TIMEOUT, 30000}}};
  for (const auto& [level, option, value] : options) ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace corbd::http
