// One object of the API, kept as the server has it: listed and watched by its name, or read again and again where this agent may only get it.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <optional>
#include <string>

#include "corbd/core/gate.hpp"
#include "corbd/kube/api.hpp"

namespace corbd::kube {

/// Control thread only. stop() before it is destroyed.
class Kept {
 public:
  /// changed: called when the object came, changed or went. The first request comes within `spread` of the start: many agents start at once.
  Kept(executor control, Clock& clock, Api& api, Resource resource, std::string name, std::function<void()> changed,
       std::chrono::milliseconds spread = std::chrono::milliseconds(0));

  void start();
  task<> stop(Until until);

  /// The server told at least once whether the object is there.
  bool known() const { return known_; }
  const std::optional<boost::json::object>& object() const { return object_; }
  /// Why the last request failed; nothing once one succeeded.
  const std::optional<Failure>& failure() const { return failure_; }

 private:
  static task<> run(Kept& self);
  task<> reflect();
  task<> poll();
  task<bool> pause(std::chrono::milliseconds time);
  task<> list(class Reflector& reflector, std::string version);
  task<> watch(class Reflector& reflector, std::string version, std::chrono::seconds timeout, bool initial);
  void unknown_because(const Failure& failure);
  void note(std::optional<boost::json::object> object);

  executor control_;
  Clock& clock_;
  Api& api_;
  const Resource resource_;
  const std::string name_;
  const std::function<void()> changed_;
  const std::chrono::milliseconds spread_;
  bool known_ = false, only_get_ = false;
  std::optional<boost::json::object> object_;
  std::optional<Failure> failure_;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::kube
