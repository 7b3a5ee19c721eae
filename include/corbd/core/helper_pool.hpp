// Helper processes: every syscall that may wait for a device of ours runs in a child of our own binary (`corbd
// helper`), one request at a time. A thread of the agent stuck in D state would survive SIGKILL and keep its sockets
// and locks; a stuck helper holds nothing of ours, is reported by name, left behind and replaced.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <string>

#include "corbd/core/helper_owner.hpp"
#include "corbd/core/wait.hpp"

namespace corbd {

/// A request to a helper. Both directions are one JSON object of at most 256 KiB per message.
struct HelperRequest {
  std::string what;          ///< for people: "mount /dev/nbd0 on /x"
  boost::json::object body;  ///< {"op": ..., arguments}
  HelperOwner owner;
  std::chrono::seconds report_after{
      30};  ///< after this the request is reported stuck and its helper replaced; the caller gets unavailable
};

/// A pool of helper processes. Control thread only.
class HelperPool {
 public:
  struct Config {
    std::string program = "/proc/self/exe";
    std::vector<std::string> arguments = {"helper"};
    /// Limit of running requests for each owner. Its further requests wait in order. Stuck ones do not count.
    std::size_t max_helpers = 4;
    /// Limit of stuck requests for each owner. At the limit its requests are refused until one ends. So an owner never
    /// has more helpers than both limits together.
    std::size_t max_stuck = 16;
    /// An idle helper ends after this time, unless it is the only idle one. Each has 5 MiB of its own, mostly
    /// relocations of libraries.
    std::chrono::seconds spare{10};
  };
  HelperPool(executor control, Clock& clock, Config config);
  /// Idle helpers end with their socket; busy ones are left to finish.
  ~HelperPool();

  /// Returns the reply body, or the error that the helper reported ({"errc": name, "text": ...}).
  task<result<boost::json::object>> call(HelperRequest request, Until until);

  /// Requests that were reported stuck and have not ended yet, for status and doctor.
  struct Stuck {
    std::string what;
    int pid;
    time_point since;
  };
  std::vector<Stuck> stuck() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Serves requests on `fd` until it closes, in the helper process. `work` turns a request body into a reply. Returns
/// the exit code.
using HelperWork = std::function<result<boost::json::object>(const boost::json::object&)>;
int serve_helper(int fd, const HelperWork& work);

}  // namespace corbd
