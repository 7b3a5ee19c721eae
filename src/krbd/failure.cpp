#include "failure.hpp"

#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

namespace corbd::krbd {
namespace {

std::string listed(const std::vector<std::string>& all) {
  std::string text;
  for (const auto& one : all) text += (text.empty() ? "" : ",") + one;
  return text;
}

}  // namespace

Error not_mapped(const device::MapArgs& args, int failed) {
  const std::string doing =
      "mapping image " + args.name.text() + " in the kernel: " + std::generic_category().message(failed);
  switch (failed) {
    case ENOENT:
      return {errc::not_found,
              doing + ": the pool, namespace or image does not exist, or there is no rbd module (`modprobe rbd`)"};
    case EPERM:
    case EACCES:
      return {errc::permission_denied, doing + ": the cluster refuses the key of user " + args.user +
                                           ", or the user lacks the caps 'profile rbd'"};
    case EROFS:
    case EBUSY:
      return {errc::in_use, doing + ": another client holds its exclusive lock and does not give it up"};
    case ENXIO:
      return {errc::failed_precondition, doing + ": the image has a feature that the kernel does not know"};
    case EINVAL:
      return {errc::failed_precondition,
              doing + ": the kernel refuses one of the monitors' addresses (" + listed(args.monitors) + ")" +
                  (args.options.empty() ? "" : " or of the options " + args.options) + ": dmesg says which"};
    case ESHUTDOWN:
      return {errc::unavailable, doing +
                                     ": the kernel client is blocklisted. Unmap its other devices (`rbd device list`), "
                                     "or map with the option noshare"};
    default:
      return {errc::unavailable, doing + ": dmesg says more. A monitor may not answer at its address, or the cluster " +
                                     "has a feature that this kernel does not know"};
  }
}

}  // namespace corbd::krbd
