// Implements Transport: connections to the servers of KMSs, and a breaker for each server.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "corbd/core/breaker.hpp"
#include "types.hpp"

namespace corbd::kms {

/// Time-outs of a server.
struct Patience {
  http::Timing timing{std::chrono::seconds(5), std::chrono::seconds(10), std::chrono::seconds(10)};
  std::chrono::milliseconds whole{25000};  ///< limit of one call, including repeats
  int tries = 3;
  Backoff between{std::chrono::milliseconds(250), std::chrono::milliseconds(2000)};
};

/// The KMS that asks and, if its type has tenants, the tenant: a server's silence to one of them proves nothing for the
/// next.
struct Asker {
  std::string kms_id;
  std::string tenant = {};
};

/// Breakers of the servers. A server that several KMSs or tenants name counts once for each of them.
class Breakers {
 public:
  static constexpr std::size_t kMost = 64;  ///< limit of silent ones; at the limit the earliest is asked again

  explicit Breakers(Clock& clock) : clock_(clock) {}

  /// A call that goes out.
  class Turn {
   public:
    Turn(Breakers& breakers, std::string server) : breakers_(&breakers), server_(std::move(server)) {}
    Turn(Turn&& other) noexcept
        : breakers_(std::exchange(other.breakers_, nullptr)), server_(std::move(other.server_)) {}
    Turn& operator=(Turn&&) = delete;
    /// If the result was not set, the call counts as if nothing had been asked.
    ~Turn();
    void answered();
    void unanswered(const Error& why);

   private:
    Breakers* breakers_;
    std::string server_;
  };
  /// unavailable: that server did not answer a moment ago. `server`: "KMS \"id\" at host:port", and its tenant.
  result<Turn> begin(const std::string& server);

 private:
  struct State {
    Breaker breaker;
    std::string why;     ///< the last failure
    time_point since{};  ///< time of the first failure
  };
  /// Forgets a server that answers, and limits the others.
  void forget(std::map<std::string, State>::iterator one);

  Clock& clock_;
  std::map<std::string, State> states_;
};

/// Resources that the requests of all KMSs share. Control thread only.
struct KmsContext {
  executor control;
  Clock& clock;
  BlockingPool& files;
  Kubernetes* kubernetes;  ///< null: there is no API server
  std::string own_namespace;
  Patience patience = {};
  Breakers breakers{clock};
  /// Made by the first request that needs them. The threads only look up names.
  std::unique_ptr<BlockingPool> names = nullptr;
  std::unique_ptr<http::Dialer> dialer = nullptr;

  /// Without an API server, every answer is failed_precondition.
  Kubernetes& api();
};

/// Makes the transport for one request of a volume.
std::unique_ptr<Transport> make_transport(KmsContext& context, Asker asker);

}  // namespace corbd::kms
