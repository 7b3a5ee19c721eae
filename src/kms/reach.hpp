// The real side of Reach: connections to the servers of KMSs, and a breaker for each server.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "corbd/core/breaker.hpp"
#include "types.hpp"

namespace corbd::kms {

/// How long a server may take.
struct Patience {
  http::Timing timing{std::chrono::seconds(5), std::chrono::seconds(10), std::chrono::seconds(10)};
  std::chrono::milliseconds whole{25000};  ///< one call, with what is asked again
  int tries = 3;
  Backoff between{std::chrono::milliseconds(250), std::chrono::milliseconds(2000)};
};

/// Of a KMS whose type has tenants, the tenant that is asked for: what a server says to one of them says nothing to the
/// next.
struct Asker {
  std::string kms_id;
  std::string tenant = {};
};

/// Which servers do not answer. One that several KMSs or tenants name counts once for each of them.
class Breakers {
 public:
  static constexpr std::size_t kMost = 64;  ///< that are silent; then the one that was so first is asked again

  explicit Breakers(Clock& clock) : clock_(clock) {}

  /// A call that goes out.
  class Turn {
   public:
    Turn(Breakers& breakers, std::string server) : breakers_(&breakers), server_(std::move(server)) {}
    Turn(Turn&& other) noexcept
        : breakers_(std::exchange(other.breakers_, nullptr)), server_(std::move(other.server_)) {}
    Turn& operator=(Turn&&) = delete;
    /// Without a word on how it ended, it counts as if nothing had been asked.
    ~Turn();
    void answered();
    void unanswered(const Error& why);

   private:
    Breakers* breakers_;
    std::string server_;
  };
  /// unavailable: that server did not answer a moment ago. `server`: "KMS \"id\" at host:port", and whose it is.
  result<Turn> begin(const std::string& server);

 private:
  struct State {
    Breaker breaker;
    std::string why;     ///< the last failure
    time_point since{};  ///< of the first failure
  };
  /// Those that answer need no memory, and of the others there are a few.
  void forget(std::map<std::string, State>::iterator one);

  Clock& clock_;
  std::map<std::string, State> states_;
};

/// What the requests of all KMSs share. Control thread only.
struct Surroundings {
  executor control;
  Clock& clock;
  BlockingPool& files;
  Kubernetes* kubernetes;  ///< null: there is none
  std::string own_namespace;
  Patience patience = {};
  Breakers breakers{clock};
  /// Both made by the first that needs them. The threads are for the resolver alone.
  std::unique_ptr<BlockingPool> names = nullptr;
  std::unique_ptr<http::Dialer> dialer = nullptr;

  /// Without one, every answer is failed_precondition.
  Kubernetes& api();
};

/// For one request of a volume.
std::unique_ptr<Reach> make_reach(Surroundings& surroundings, Asker asker);

}  // namespace corbd::kms
