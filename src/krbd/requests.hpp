// What the agent asks its helper.
#pragma once

#include <boost/json/object.hpp>

#include "corbd/device/kernel_client.hpp"

namespace corbd::krbd {

inline constexpr const char* kMap = "krbd_map";
inline constexpr const char* kUnmap = "krbd_unmap";

boost::json::object to_json(const device::MapArgs& args);
/// Throws for anything else.
device::MapArgs map_args(const boost::json::object& request);

}  // namespace corbd::krbd
