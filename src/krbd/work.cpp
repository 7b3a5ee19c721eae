// The helper's side. It maps and unmaps; both wait for the cluster.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <cerrno>
#include <system_error>

#include "add_line.hpp"
#include "corbd/core/fd.hpp"
#include "corbd/krbd/kernel_client.hpp"
#include "corbd/krbd/sysfs.hpp"
#include "failure.hpp"
#include "kernel_key.hpp"
#include "monitors.hpp"
#include "requests.hpp"

namespace corbd::krbd {
namespace {

namespace json = boost::json;

/// Returns errno, or 0. A module that was loaded with single_major=N has only the older files.
int write_bus(const std::string& sysfs, const std::string& which, const std::string& line) {
  const std::string file = sysfs + "/bus/rbd/" + which;
  Fd fd(::open((file + "_single_major").c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) fd = Fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), line.data(), line.size()) < 0) return errno;
  return 0;
}

/// The kernel takes a name, and that may belong to another image by now.
result<> check_identity(const std::string& sysfs, const device::MapArgs& args,
                        const std::vector<device::Seen>& before) {
  const auto all = read_inventory(sysfs);
  if (!all) return all.error();
  if (!device::of_image(*all, args.image).empty()) return {};
  for (const auto& seen : device::of_name(*all, args.name)) {
    const bool known = std::ranges::any_of(before, [&](const auto& one) { return one.index == seen.index; });
    if (!known) write_bus(sysfs, "remove", std::to_string(seen.index));
  }
  return Error{errc::not_found, "image " + args.name.text() + " is not " + args.image.text() +
                                    " any more: it was renamed, or deleted and made again"};
}

result<json::object> map(const std::string& sysfs, device::MapArgs args) {
  auto monitors = with_addresses(args.monitors, look_up_host);
  if (!monitors) return monitors.error();
  args.monitors = std::move(*monitors);
  args.options = with_ms_mode(std::move(args.options), args.monitors);
  const auto known = read_inventory(sysfs);
  if (!known) return known.error();
  const auto before = device::of_name(*known, args.name);
  const auto key = KernelKey::add("client." + args.user, args.key);
  if (!key) return key.error();
  const auto line = add_line({args.monitors, args.user, key->name(), args.name, args.read_only, args.options});
  if (!line) return line.error();
  if (const int failed = write_bus(sysfs, "add", *line); failed != 0) return not_mapped(args, failed);
  if (auto same = check_identity(sysfs, args, before); !same) return same.error();
  return json::object();
}

result<json::object> unmap(const std::string& sysfs, std::uint32_t index, const std::string& options) {
  const int failed = write_bus(sysfs, "remove", std::to_string(index) + (options.empty() ? "" : " " + options));
  if (failed == 0 || failed == ENOENT) return json::object();
  const std::string doing =
      "unmapping " + device::path(index, device::Kind::krbd) + ": " + std::generic_category().message(failed);
  if (failed == EBUSY) return Error{errc::in_use, doing + ": it is open or mounted, maybe in another mount namespace"};
  if (failed == EINVAL)
    return Error{errc::failed_precondition,
                 doing + ": the kernel knows only the unmapOptions force, not '" + options + "'"};
  return Error{errc::unavailable, doing};
}

}  // namespace

bool knows(const json::object& request) {
  const auto* op = request.if_contains("op");
  return op != nullptr && op->is_string() && (op->get_string() == kMap || op->get_string() == kUnmap);
}

result<json::object> work(const json::object& request) {
  const std::string sysfs(request.at("sysfs").as_string());
  if (request.at("op").as_string() == kMap) return map(sysfs, map_args(request));
  return unmap(sysfs, request.at("index").to_number<std::uint32_t>(), std::string(request.at("options").as_string()));
}

}  // namespace corbd::krbd
