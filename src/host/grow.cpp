// Implements ops::extent and ops::grow: reads the size of a mounted filesystem, and makes it as large as its device.
#include "filesystem_types.hpp"
#include "ops.hpp"
#include "run.hpp"

namespace corbd::host::ops {
namespace {

Error not_known(const std::string& fstype) {
  return {errc::unimplemented,
          "cannot measure or grow a filesystem of type " + fstype + ": this agent knows " + known_filesystems()};
}

}  // namespace

result<Extent> extent(const std::string& device, const std::string& fstype, const std::string& target) {
  const auto* type = filesystem_type(fstype);
  return type == nullptr ? not_known(fstype) : type->extent(device, target);
}

result<> grow(const std::string& device, const std::string& fstype, const std::string& target) {
  const auto* type = filesystem_type(fstype);
  if (type == nullptr) return not_known(fstype);
  const auto refused = [&](errc code, const std::string& why) {
    const bool errors = type->has_errors != nullptr && type->has_errors(device);
    return Error{code, why + (errors ? ": it has errors, and grows only after a check: end all that uses the volume on "
                                       "this node, so that it is unstaged. Its next stage checks and grows it"
                                     : "")};
  };
  if (type->grow_by_mount != nullptr)
    if (const auto grown = type->grow_by_mount(device, target))
      return *grown ? *grown : refused(grown->error().code, grown->error().text);
  const Arguments argv = type->grow(device, target);
  const auto ended = run(argv, Capture::everything);
  if (!ended && ended.error().code == errc::not_found) return Error{errc::failed_precondition, ended.error().text};
  if (!ended) return ended.error();
  if (ended->code == 0) return {};
  return refused(ended->signal != 0 ? errc::unavailable : errc::failed_precondition,
                 "growing the filesystem of " + device + " at " + target + " with " + argv.front() + ": " +
                     host::describe(*ended));
}

}  // namespace corbd::host::ops
