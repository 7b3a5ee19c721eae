// Objects of the API, kept as the server has them. One by its name: listed and watched, or read again and again where
// this agent may only get it. Or those of a whole collection that are ours.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "corbd/core/gate.hpp"
#include "corbd/kube/api.hpp"

namespace corbd::kube {

struct Which {
  std::string name;  ///< the one object; empty: all that are ours
  std::string selector =
      {};  ///< of all: which fields the server shall look at. One that does not know it is asked for all
  std::function<bool(const boost::json::object&)> ours = nullptr;
};

/// Control thread only. stop() before it is destroyed.
class Kept {
 public:
  using Objects = std::map<std::string, boost::json::object>;  ///< by name
  /// changed: called with the name of an object that came, changed or went, and with the one object's when it is known
  /// that there is none. The first request comes within `spread` of the start: many agents start at once.
  Kept(executor control, Clock& clock, Api& api, Resource resource, Which which,
       std::function<void(const std::string& name)> changed,
       std::chrono::milliseconds spread = std::chrono::milliseconds(0));

  void start();
  task<> stop(Until until);

  /// The server told at least once what there is.
  bool known() const { return known_; }
  const Objects& objects() const { return objects_; }
  /// The one object; nothing when there is none.
  const boost::json::object* object() const { return objects_.empty() ? nullptr : &objects_.begin()->second; }
  /// It may not be watched, by this agent: what is known is up to minutes old.
  bool only_gets() const { return only_get_; }
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
  bool only_one() const { return !which_.name.empty(); }
  bool wanted(const boost::json::object& object) const;
  void note(Objects all);
  void note(const std::string& name, std::optional<boost::json::object> object);

  executor control_;
  Clock& clock_;
  Api& api_;
  const Resource resource_;
  const Which which_;
  std::string selector_;
  const std::function<void(const std::string& name)> changed_;
  const std::chrono::milliseconds spread_;
  bool known_ = false, only_get_ = false;
  Objects objects_;
  std::optional<Failure> failure_;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::kube
