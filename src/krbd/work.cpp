// Maps and unmaps in the helper. Both wait for the cluster.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "add_line.hpp"
#include "corbd/core/fd.hpp"
#include "corbd/krbd/kernel_client.hpp"
#include "corbd/krbd/sysfs.hpp"
#include "failure.hpp"
#include "kernel_key.hpp"
#include "monitors.hpp"
#include "operations.hpp"

namespace corbd::krbd {
namespace {

/// Returns errno, or 0. A module that was loaded with single_major=N has only the older files.
int write_bus(const std::string& sysfs, const std::string& which, const std::string& line) {
  const std::string file = sysfs + "/bus/rbd/" + which;
  Fd fd(::open((file + "_single_major").c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) fd = Fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), line.data(), line.size()) < 0) return errno;
  return 0;
}

/// The kernel takes a name, which may belong to another image by now.
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

}  // namespace

result<> perform(const Map& asked) {
  const auto& sysfs = asked.sysfs;
  auto args = asked.args;
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
  return check_identity(sysfs, args, before);
}

result<> perform(const Unmap& asked) {
  const auto& [sysfs, index, options] = asked;
  const int failed = write_bus(sysfs, "remove", std::to_string(index) + (options.empty() ? "" : " " + options));
  if (failed == 0 || failed == ENOENT) return {};
  const std::string doing =
      "unmapping " + device::path(index, device::Kind::krbd) + ": " + std::generic_category().message(failed);
  if (failed == EBUSY) return Error{errc::in_use, doing + ": it is open or mounted, maybe in another mount namespace"};
  if (failed == EINVAL)
    return Error{errc::failed_precondition,
                 doing + ": the kernel knows only the unmapOptions force, not '" + options + "'"};
  return Error{errc::unavailable, doing};
}

std::span<const helper::Known> helper_operations() { return helper::kKnown<Map, Unmap>; }

}  // namespace corbd::krbd
