#include "resize.hpp"

#include <boost/json/value.hpp>

#include "corbd/nbd/devices.hpp"
#include "corbd/nbd/sysfs.hpp"
#include "netlink.hpp"

namespace corbd::nbd {
namespace {

namespace json = boost::json;

constexpr const char* kResize = "nbd_resize";

}  // namespace

HelperRequest resize_request(const Resize& wanted, const std::string& commands_lock) {
  HelperRequest request;
  request.what = "resize " + device::path(wanted.index) + " of " + wanted.backend;
  request.body = {{"op", kResize},
                  {"index", wanted.index},
                  {"backend", wanted.backend},
                  {"bytes", wanted.bytes},
                  {"sysfs", wanted.sysfs}};
  request.owner.busy_file = commands_lock;
  return request;
}

bool knows(const json::object& request) {
  const auto* op = request.if_contains("op");
  return op != nullptr && op->is_string() && op->get_string() == kResize;
}

result<json::object> work(const json::object& request) {
  const auto index = request.at("index").to_number<std::uint32_t>();
  const auto bytes = request.at("bytes").to_number<std::uint64_t>();
  // Another agent may have made it larger since: a device never shrinks. The kernel compares the identifier.
  const auto seen = read_one(std::string(request.at("sysfs").as_string()), index);
  if (seen && seen->size >= bytes) return json::object();
  auto netlink = Netlink::open();
  if (!netlink) return netlink.error();
  auto done = netlink->resize(index, std::string(request.at("backend").as_string()), bytes);
  if (!done) return done.error();
  return json::object();
}

}  // namespace corbd::nbd
