// The commands to the kernel whose end the control thread has not heard of yet.
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

/// Control thread, but for begin().
class Commands {
 public:
  class Ticket {
   public:
    /// Any thread. False: its caller has left before it was begun, and it is not to be given to the kernel any more.
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

  /// `refuse`: called when it is not begun because the agent leaves. Null when it leaves already.
  Place add(std::string backend, device::Command told, std::function<void()> refuse);
  /// Its end is known.
  void remove(const Place& place);
  /// Its caller leaves: it is dropped, unless it was begun.
  void leave(const Place& place) {
    if (place->begin()) remove(place);
  }
  /// Of that device.
  std::optional<device::Command> find(const std::string& backend) const;
  /// None is begun from now on.
  void close();
  /// Set when none is under way and none will be.
  Event& none() { return none_; }

 private:
  std::list<Place> all_;
  bool closed_ = false;
  Event none_;
};

}  // namespace corbd::nbd
