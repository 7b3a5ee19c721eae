// The devices that this agent serves, over all kinds.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "corbd/device/device.hpp"

namespace corbd::device {

/// Has one port for each kind whose traits say `served`. Questions that need no kind go to all of them.
class Served {
 public:
  Served(Devices& only) : ports_{{Kind(), &only}} {}  // NOLINT: a node with the first kind alone is the usual one
  /// Every port outlives this.
  explicit Served(const std::map<Kind, std::unique_ptr<Devices>>& ports) {
    for (const auto& [kind, port] : ports) ports_.emplace(kind, port.get());
  }

  /// The kind must be served.
  Devices& of(Kind kind) const { return *ports_.at(kind); }

  /// Returns Devices::ready() of each kind.
  std::map<Kind, result<>> ready() const {
    std::map<Kind, result<>> all;
    for (const auto& [kind, devices] : ports_) all.emplace(kind, devices->ready());
    return all;
  }
  result<std::vector<Seen>> inventory() const {
    return gather([](const Devices& devices) { return devices.inventory(); });
  }
  result<std::vector<Seen>> find(const std::string& backend) const {
    return gather([&](const Devices& devices) { return devices.find(backend); });
  }
  std::optional<Command> under_way(const std::string& backend) const {
    for (const auto& [kind, devices] : ports_)
      if (auto command = devices->under_way(backend)) return command;
    return std::nullopt;
  }
  bool has_inherited(const std::string& backend) const {
    return std::ranges::any_of(ports_, [&](const auto& port) { return port.second->has_inherited(backend); });
  }
  void on_link_dead(const std::function<void(Kind kind, std::uint32_t index)>& dead) const {
    for (const auto& port : ports_)
      port.second->on_link_dead([dead, kind = port.first](std::uint32_t index) { dead(kind, index); });
  }

  /// Asks the kinds one after the other: most have nothing to end, and the limit is the same for all.
  task<Waited> end_commands(Until until) const {
    for (const auto& [kind, devices] : ports_)
      if (const Waited ended = co_await devices->end_commands(until); ended != Waited::ready) co_return ended;
    co_return Waited::ready;
  }
  task<Waited> end_links(Until until) const {
    Waited all = Waited::ready;
    for (const auto& [kind, devices] : ports_)
      if (const Waited ended = co_await devices->end_links(until); ended != Waited::ready) all = ended;
    co_return all;
  }
  Counters counters() const {
    Counters all;
    for (const auto& [kind, devices] : ports_) all += devices->counters();
    return all;
  }

 private:
  template <class Ask>
  result<std::vector<Seen>> gather(Ask ask) const {
    std::vector<Seen> all;
    for (const auto& [kind, devices] : ports_) {
      auto some = ask(*devices);
      if (!some) return some;
      all.insert(all.end(), std::make_move_iterator(some->begin()), std::make_move_iterator(some->end()));
    }
    return all;
  }
  std::map<Kind, Devices*> ports_;
};

}  // namespace corbd::device
