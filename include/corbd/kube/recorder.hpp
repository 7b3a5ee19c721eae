// Writes Events on objects of the API, for people: aggregated by object and reason, at the rate of client-go
// (docs/sources.md#api-events). An Event that the server refuses, or does not take after some tries, is dropped: no
// caller waits for an Event.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "corbd/core/gate.hpp"
#include "corbd/kube/api.hpp"

namespace corbd::kube {

/// The object that an event is about.
struct Involved {
  std::string kind, name_space, name, uid;  ///< name_space empty: an object of the cluster
  auto operator<=>(const Involved&) const = default;
};

struct Notice {
  std::string reason;  ///< "VolumeLost"
  bool warning = false;
  std::string message;  ///< at most 1024 bytes count
};

/// Control thread only; stop() before it is destroyed.
class Recorder {
 public:
  struct Config {
    std::string component, host;
    std::chrono::seconds answer_within{10};
    std::chrono::minutes same_for{10};     ///< an event that occurs again within this time is counted, not repeated
    std::chrono::milliseconds every{200};  ///< average interval
    std::size_t burst = 25, waiting = 512;
    std::uint32_t tries = 5;  ///< tries of each, if the server is busy or silent
  };
  Recorder(executor control, Clock& clock, Api& api, Config config);

  void tell(Involved about, Notice notice);
  task<> stop(Until until);

 private:
  struct Told {
    std::string name;
    std::int64_t count = 0;
    time_point at{};
  };
  struct Waiting {
    Involved about;
    Notice notice;
    std::chrono::system_clock::time_point at;
  };
  using Key = std::pair<Involved, std::string>;  ///< the object and the reason
  task<> send();
  task<answer<>> send_again(const Waiting& one);
  task<answer<>> send(const Waiting& one);
  void forget_old();

  executor control_;
  Clock& clock_;
  Api& api_;
  const Config config_;
  std::deque<Waiting> waiting_;
  std::map<Key, Told> told_;
  std::size_t tokens_;
  time_point filled_{};
  bool sending_ = false, refused_ = false;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::kube
