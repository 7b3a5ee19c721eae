// The commands to the kernel whose end the control thread does not know yet.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "corbd/core/wait.hpp"
#include "corbd/device/device.hpp"

namespace corbd::nbd {

/// Control thread, except begin().
class Commands {
 public:
  class Ticket {
   public:
    /// Any thread. Returns false if its caller left before it was begun; do not give it to the kernel then.
    bool begin() { return !taken_.exchange(true); }

   private:
    friend class Commands;
    std::string backend_;
    device::Command told_;
    std::function<void()> refuse_;
    std::atomic<bool> taken_{false};
  };
  using Place = std::shared_ptr<Ticket>;

  Commands(executor control, Clock& clock) : none_(std::move(control), clock) {}

  /// `refuse` is called if it is not begun because the agent leaves. Returns null if the agent is leaving already.
  Place add(std::string backend, device::Command told, std::function<void()> refuse);
  /// Its end is known.
  void remove(const Place& place);
  /// Its caller leaves. It is dropped unless it was begun.
  void leave(const Place& place) {
    if (place->begin()) remove(place);
  }
  /// The command on that device.
  std::optional<device::Command> find(const std::string& backend) const;
  /// Begins none from now on.
  void close();
  /// Set when none is under way and none will be.
  Event& none() { return none_; }

 private:
  std::list<Place> all_;
  bool closed_ = false;
  Event none_;
};

}  // namespace corbd::nbd
