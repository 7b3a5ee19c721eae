#include "failure.hpp"

#include <cerrno>
#include <cstring>

namespace corbd::host {
namespace {

// Returns unavailable if a repeat can help. If a device is gone or does not exist yet, the planner looks again.
errc meaning(int error) {
  switch (error) {
    case EBUSY:
      return errc::in_use;
    case EIO:
    case EUCLEAN:  // a filesystem's "structure needs cleaning"
    case EBADMSG:
      return errc::io;
    case EINVAL:
    case ENODEV:  // from fsopen: a filesystem that the kernel does not have
    case EROFS:
    case EACCES:  // from a mount: the device is read-only and the mount is not
    case ENOTDIR:
    case ELOOP:
    case ENOTEMPTY:
    case ENOTBLK:
    case ENOSYS:
    case EPERM:
      return errc::failed_precondition;
    default:
      return errc::unavailable;
  }
}

}  // namespace

Error failure(std::string doing, int error) { return {meaning(error), std::move(doing) + ": " + std::strerror(error)}; }

}  // namespace corbd::host
