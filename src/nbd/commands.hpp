// Commands to the kernel whose end the control thread does not know yet. They run one after another.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "corbd/core/fd.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/device/device.hpp"

namespace corbd::nbd {

/// Whether any process of the node gives a command now, perhaps a helper that outlived its agent: see Commands.
bool is_under_way(const std::string& lock);

/// Control thread.
class Commands {
 public:
  /// While this is open, no other agent or helper of the node gives a command.
  using Turn = std::shared_ptr<Fd>;
  using Start = std::function<void(Turn)>;
  class Ticket {
    friend class Commands;
    std::string backend_;
    device::Command told_;
    Start start_;
    std::function<void(const Error&)> refuse_;
    bool begun_ = false;
  };
  using Place = std::shared_ptr<Ticket>;

  /// `lock`: a file that all agents of the node lock for their commands; "": there is no other agent.
  Commands(executor control, Clock& clock, std::string lock)
      : clock_(clock), lock_(std::move(lock)), none_(std::move(control), clock) {}

  /// Adds a command. `start` is called when its turn has come, `refuse` if that never comes, except when its caller
  /// leaves. Returns null if the agent is leaving already.
  Place add(std::string backend, device::Command told, Start start, std::function<void(const Error&)> refuse);
  /// Call this when the end of the running command is known.
  void ended();
  /// Drops the command of a caller that leaves, unless it has begun.
  void leave(const Place& place);
  /// Returns the command on that device.
  std::optional<device::Command> find(const std::string& backend) const;
  /// Starts no command from now on.
  void close();
  /// Set when no command is under way and none will be, nor one of a helper that outlived its agent.
  Event& none() { return none_; }

 private:
  void begin_next();
  void look_again();
  void note_none();
  void drop(const Place& place);

  Clock& clock_;
  const std::string lock_;
  std::list<Place> all_;  ///< the first one may have begun
  bool closed_ = false;
  bool looks_again_ = false;
  int looks_ = 0;  ///< tries at a lock that another process has
  Event none_;
  /// Timers check this first.
  std::shared_ptr<void> alive_ = std::make_shared<char>();
};

}  // namespace corbd::nbd
