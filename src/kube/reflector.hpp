// Decides when to list, when to watch and how long to wait in between: client-go's rules and numbers
// (docs/sources.md#api-watch) as a state machine without time or network.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "corbd/core/clock.hpp"
#include "corbd/kube/answer.hpp"

namespace corbd::kube {

class Reflector {
 public:
  struct List {
    std::string version;  ///< "0": any, from the server's cache; "": the most recent
    bool operator==(const List&) const = default;
  };
  struct Watch {
    std::string version;           ///< sends changes after this version
    std::chrono::seconds timeout;  ///< timeout that the server is asked for
    bool initial = false;          ///< first sends everything that exists, instead of a list, and a mark at its end
    bool operator==(const Watch&) const = default;
  };
  struct Sleep {
    std::chrono::milliseconds time;
    bool operator==(const Sleep&) const = default;
  };
  using Action = std::variant<List, Watch, Sleep>;

  /// Returns the next action. random: uniform in [0, 1). Call it again after each of the calls below, and after a
  /// Sleep.
  Action next(double random);

  void listed(std::string version);
  void list_failed(const ApiError& failure, time_point now);
  /// Call this when a watch begins. Its duration matters.
  void watching(time_point now);
  /// Call this for each event of the watch with a version, also for a bookmark.
  void seen(std::string version);
  /// Call this when the watch has sent everything that exists, up to this version. From now on it is like any other.
  void initial_told(std::string version);
  /// Call this when the server ended the watch, or it broke. Without a failure it ended in good order, or was given up
  /// because that mark never came. If the server does not know such watches, none is asked for again.
  void watch_ended(const std::optional<ApiError>& failure, time_point now);

  const std::string& version() const { return version_; }

 private:
  void back_off(const std::optional<std::chrono::seconds>& at_least, time_point now);
  enum class Does { list, watch } does_ = Does::list;
  std::string version_ = "0";
  bool from_most_recent_ = false;
  bool asks_initial_ = true;      ///< the server may support watches instead of a list
  bool telling_initial_ = false;  ///< the present watch is one, and has not sent everything yet
  std::uint64_t events_ = 0;      ///< events of the present watch
  time_point began_{};
  std::uint32_t failures_ = 0;  ///< consecutive failures
  time_point last_failure_{};
  std::optional<time_point> last_expired_;  ///< time when a watch's version was last too old
  bool sleeps_ = false;
  std::optional<std::chrono::seconds> at_least_;
};

}  // namespace corbd::kube
