#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "corbd/core/log.hpp"
#include "failure.hpp"
#include "mountinfo.hpp"
#include "ops.hpp"
#include "target.hpp"

namespace corbd::host::ops {
namespace {

// Ignores errors: data that cannot be stored any more must not keep the mount for ever. The callers of fsync got the
// error.
void sync_filesystem(const HeldPath& target) {
  const Fd folder = target.open(O_RDONLY | O_DIRECTORY);
  if (!folder && errno == ENOTDIR) return;  // a device node: its last close writes everything back
  if (!folder || ::syncfs(folder.get()) != 0)
    log::warning("unmount.sync_failed", {{"target", target.path()}, {"error", std::strerror(errno)}});
}

result<bool> is_mounted(const HeldPath& target) {
  const auto opened = open_target(target);
  if (!opened) return opened.error();
  if (!*opened) return false;
  const auto there = mount_at((*opened)->get(), target.path());
  if (!there) return there.error();
  return there->has_value();
}

}  // namespace

result<> unmount(const std::string& target, bool sync) {
  // After an orchestrator's repeats, a target can carry several mounts, one over the other.
  constexpr int most_layers = 16;
  const auto place = HeldPath::find(target);
  if (!place && place.error().code == errc::not_found) return {};
  if (!place) return place.error();
  for (int layer = 0; layer < most_layers; ++layer) {
    const auto mounted = is_mounted(*place);
    if (!mounted) return mounted.error();
    if (!*mounted) return remove_target(*place);
    if (sync) sync_filesystem(*place);
    if (!place->unmount() && errno != EINVAL) return failure("unmounting " + target, errno);
  }
  return Error{errc::failed_precondition,
               target + " still has a mount after " + std::to_string(most_layers) + " were removed"};
}

}  // namespace corbd::host::ops
