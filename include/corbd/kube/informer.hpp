// Keeps a copy of objects of the API. It follows either one object by name: listed and watched, or read repeatedly
// where this agent may only get it. Or it follows those objects of a whole collection that are ours.
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
  std::string name;  ///< name of the one object; empty: all objects that are ours
  std::string selector =
      {};  ///< for a collection: the field selector. A server that does not know it sends all objects
  std::function<bool(const boost::json::object&)> ours = nullptr;
};

/// Control thread only. stop() before it is destroyed.
class Informer {
 public:
  using Objects = std::map<std::string, boost::json::object>;  ///< by name
  /// `changed` is called with the name of an object that came, changed or went. It is also called with the one object's
  /// name once it is known not to exist. The first request comes within `spread` of the start, because many agents
  /// start at once.
  Informer(executor control, Clock& clock, Api& api, Resource resource, Which which,
           std::function<void(const std::string& name)> changed,
           std::chrono::milliseconds spread = std::chrono::milliseconds(0));

  void start();
  task<> stop(Until until);

  /// Whether the server has sent everything that exists at least once.
  bool known() const { return known_; }
  const Objects& objects() const { return objects_; }
  /// Returns the one object; nothing if it does not exist.
  const boost::json::object* object() const { return objects_.empty() ? nullptr : &objects_.begin()->second; }
  /// Whether this agent may not watch it, so that its copy may be minutes old.
  bool only_gets() const { return only_get_; }
  /// Returns why the last request failed; nothing after a success.
  const std::optional<ApiError>& failure() const { return failure_; }

 private:
  static task<> run(Informer& self);
  task<> reflect();
  task<> poll();
  task<bool> pause(std::chrono::milliseconds time);
  task<> list(class Reflector& reflector, std::string version);
  task<> watch(class Reflector& reflector, std::string version, std::chrono::seconds timeout, bool initial);
  void unknown_because(const ApiError& failure);
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
  std::optional<ApiError> failure_;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::kube
