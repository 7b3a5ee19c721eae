// The operations of a helper for this room. `sysfs` is the root of sysfs.
#pragma once

#include "corbd/core/helper_operation.hpp"
#include "corbd/device/kernel_client.hpp"

namespace corbd::krbd {

/// The kernel waits a minute for the monitors, then for the lock.
constexpr std::chrono::seconds kPatience{150};

struct Map {
  using Reply = void;
  static constexpr std::string_view name = "krbd_map";
  static constexpr std::chrono::seconds patience = kPatience;
  std::string sysfs;
  device::MapArgs args;
  static constexpr std::tuple fields{fields::required("sysfs", &Map::sysfs), fields::required("args", &Map::args)};
  std::string what() const { return "map image " + args.name.text(); }
};
result<> perform(const Map& asked);

struct Unmap {
  using Reply = void;
  static constexpr std::string_view name = "krbd_unmap";
  static constexpr std::chrono::seconds patience = kPatience;
  std::string sysfs;
  std::uint32_t index = 0;
  std::string options;
  static constexpr std::tuple fields{fields::required("sysfs", &Unmap::sysfs), fields::required("index", &Unmap::index),
                                     fields::required("options", &Unmap::options)};
  std::string what() const { return "unmap " + device::path(index, device::Kind::krbd); }
};
result<> perform(const Unmap& asked);

}  // namespace corbd::krbd
