// An HTTP/1.1 client for one server, with TLS. The agent talks to the API server with it. It keeps connections and
// reuses them. Every wait has an end. It ignores proxy variables of the environment
// (docs/encryption.md#where-the-key-comes-from).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/core/wait.hpp"

namespace corbd::http {

/// The server, and the credentials of both sides.
struct Peer {
  std::string host;  ///< a name or an address, IPv6 without brackets
  std::uint16_t port = 443;
  bool tls = true;
  bool insecure = false;    ///< accept any certificate
  bool tls13 = false;       ///< refuse TLS 1.2
  std::string name = {};    ///< name for its certificate and for SNI; empty: `host`
  std::string authorities;  ///< PEM; empty: the system's authorities
  std::string certificate;  ///< PEM, this client's; empty: none
  Secret key;               ///< PEM, the key of that certificate
  /// Returns "10.0.0.1:6443" or "[::1]:443".
  std::string text() const;
  const std::string& certified_name() const { return name.empty() ? host : name; }
  bool operator==(const Peer&) const = default;
};

struct Timing {
  std::chrono::milliseconds connect{10000};  ///< to each address, TLS included
  std::chrono::milliseconds head{30000};     ///< from the request to the answer's headers
  std::chrono::milliseconds idle{60000};     ///< between two pieces of the answer's body
};

struct Message {
  std::string method = "GET", target;
  std::vector<std::pair<std::string, std::string>> headers;
  Secret bearer;  ///< for the Authorization header, if not empty
  std::string body;
  std::size_t limit = 16 << 20;                   ///< bytes of an answer's body; a longer one is an error
  std::optional<std::chrono::milliseconds> idle;  ///< instead of Timing's
  bool stores = false;                            ///< its caller takes a final error for the end of the request
};

struct Reply {
  unsigned status = 0;
  std::optional<std::chrono::seconds> retry_after;            ///< the header, if it is a number
  std::optional<std::chrono::system_clock::time_point> date;  ///< the server's clock, whole seconds
  std::string body;  ///< with a sink: only the first MiB of an answer other than 2xx
};

/// Takes a piece of a body, as it comes. Returns false to stop.
using Sink = std::function<bool(std::string_view piece)>;

/// Limit of simultaneous look-ups for one share; further ones wait. So a user of silent name servers takes no more
/// threads.
inline constexpr std::size_t kLookUpsOfAShare = 2;

/// Resources that the clients of many servers share: one look-up of a name for all that want it at the same time, and
/// one TLS context for all with the same authorities. Control thread only. Outlives the clients.
class Dialer {
 public:
  /// Returns the addresses of a host as texts, or the error. Blocks.
  using LookUp = std::function<result<std::vector<std::string>>(const std::string& host)>;
  /// `names` runs look-ups, which may hold a thread while a name server is silent. `files` reads certificates; null:
  /// they are small, and are read at once.
  Dialer(executor control, Clock& clock, BlockingPool& names, BlockingPool* files, LookUp look_up = system_look_up);
  ~Dialer();
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

  /// Asks the system's resolver. A question ends after some seconds, whatever resolv.conf allows.
  static result<std::vector<std::string>> system_look_up(const std::string& host);

  class Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// Limit of addresses tried for one name.
inline constexpr std::size_t kAddressesTried = 4;

/// Control thread only. Outlives its calls. The bytes that it sends and receives are wiped afterwards.
class Client {
 public:
  /// Makes a dialer of its own.
  Client(executor control, Clock& clock, BlockingPool& pool, Peer peer, Timing timing = {});
  /// `share`: owner of the look-ups, see kLookUpsOfAShare.
  Client(executor control, Clock& clock, const Dialer& dialer, std::string share, Peer peer, Timing timing = {});
  ~Client();

  /// unavailable: the server cannot be reached, or ended in the middle. unauthenticated: its certificate is not one of
  /// the authorities', or not for that host. exhausted: the body is too long. failed_precondition: a header is too
  /// long, or has control characters. io: the answer is not HTTP. Once a message that stores was sent, a failure of TLS
  /// is unavailable: the server may have carried the request out. A GET is repeated once if a kept connection turns out
  /// to be closed. The body of a 2xx goes to the sink, if there is one, whatever its length.
  task<result<Reply>> call(Message message, Until until, Sink sink = nullptr);
  /// Sends one request that is not HTTP and receives its answer, on a connection of their own. From the bytes so far,
  /// `length` returns how many bytes the answer has at least; it is complete when that many have come. Errors are those
  /// of call(); `limit` is Message's.
  using Length = std::function<std::size_t(std::string_view so_far)>;
  task<result<std::string>> exchange(std::string request, Length length, std::size_t limit, Until until);
  /// Sets the peer for later connections. Kept connections are closed.
  void set_peer(Peer peer);
  const Peer& peer() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::http
