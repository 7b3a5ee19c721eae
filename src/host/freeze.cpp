// Implements ops::freeze and ops::thaw: FIFREEZE and FITHAW on a mounted filesystem. The kernel has no call that tells
// whether a filesystem is frozen.
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "failure.hpp"
#include "ops.hpp"
#include "target.hpp"

namespace corbd::host::ops {

result<std::string> freeze(const std::string& target, time_point last, time_point (*now)()) {
  const auto is_late = [last, now] { return now() >= last; };
  const auto root = open_mounted_folder(target);
  if (!root) return root.error().text;
  // Writers go on meanwhile, so they wait less for the freeze, which writes the rest. FIFREEZE sees the same errors.
  static_cast<void>(::syncfs(root->get()));
  if (is_late()) return "the data of the filesystem at " + target + " was not written in time";
  if (::ioctl(root->get(), FIFREEZE, 0) == 0) {
    if (!is_late()) return std::string();
    // Nobody waits for it any more, and the agent may have died.
    if (::ioctl(root->get(), FITHAW, 0) == 0 || errno == EINVAL)
      return "the filesystem at " + target + " was not frozen in time";
    return failure("thawing the filesystem at " + target + ", which was not frozen in time", errno);
  }
  if (errno == EBUSY) return "somebody else has frozen the filesystem at " + target;
  if (errno == EOPNOTSUPP || errno == ENOTTY)
    return "the filesystem at " + target + " is of a type that cannot be frozen";
  return failure("freezing the filesystem at " + target, errno).text;
}

result<bool> thaw(const std::string& target) {
  const auto root = open_mounted_folder(target);
  if (!root) return root.error();
  if (::ioctl(root->get(), FITHAW, 0) == 0) return true;
  if (errno == EINVAL) return false;
  return failure("thawing the filesystem at " + target, errno);
}

}  // namespace corbd::host::ops
