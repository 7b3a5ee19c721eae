#include "failure.hpp"

#include <cerrno>
#include <system_error>

namespace corbd::rbd {

errc code_of(int negative) {
  switch (-negative) {
    case 0:
      return errc::ok;
    case ENOENT:
      return errc::not_found;
    case EEXIST:
      return errc::already_exists;
    case EPERM:
    case EACCES:
      return errc::permission_denied;
    case ESHUTDOWN:
      return errc::fenced;
    case EBUSY:
    case EROFS:
      return errc::in_use;
    case ETIMEDOUT:
    case EAGAIN:
    case EINTR:
    case ENOTCONN:
    case ECONNREFUSED:
    case ECONNRESET:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ESTALE:
      return errc::unavailable;
    case ENOSYS:
    case EOPNOTSUPP:
      return errc::unimplemented;
    case EINVAL:
      return errc::invalid_argument;
    case ERANGE:
      return errc::out_of_range;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return errc::exhausted;
    default:
      return errc::io;
  }
}

std::string reason(int negative) {
  if (negative == -ESHUTDOWN) return "the cluster has blocklisted this client";
  return std::generic_category().message(-negative);
}

Error failure(std::string_view doing, int negative, std::string_view remedy) {
  std::string text = std::string(doing) + ": " + reason(negative);
  if (!remedy.empty()) text += ": " + std::string(remedy);
  return {code_of(negative), std::move(text)};
}

}  // namespace corbd::rbd
