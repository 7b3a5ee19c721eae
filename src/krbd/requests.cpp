#include "requests.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

namespace corbd::krbd {
namespace {

namespace json = boost::json;

std::string text(const json::object& request, std::string_view key) { return std::string(request.at(key).as_string()); }

}  // namespace

json::object to_json(const device::MapArgs& args) {
  json::array monitors;
  for (const auto& monitor : args.monitors) monitors.emplace_back(monitor);
  return {{"op", kMap},
          {"monitors", std::move(monitors)},
          {"user", args.user},
          {"secret", args.key.reveal()},
          {"pool", args.name.pool},
          {"ns", args.name.ns},
          {"image", args.name.image},
          {"fsid", args.image.fsid},
          {"pool_id", args.image.pool_id},
          {"image_id", args.image.image_id},
          {"read_only", args.read_only},
          {"options", args.options}};
}

device::MapArgs map_args(const json::object& request) {
  device::MapArgs args;
  for (const auto& monitor : request.at("monitors").as_array()) args.monitors.emplace_back(monitor.as_string());
  args.user = text(request, "user");
  args.key = Secret(text(request, "secret"));
  args.name = {text(request, "pool"), text(request, "ns"), text(request, "image")};
  args.image = {text(request, "fsid"), request.at("pool_id").to_number<std::int64_t>(), args.name.ns,
                text(request, "image_id"), 0};
  args.read_only = request.at("read_only").as_bool();
  args.options = text(request, "options");
  return args;
}

}  // namespace corbd::krbd
