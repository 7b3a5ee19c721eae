#include "corbd/host/kernel_needs.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "corbd/core/fd.hpp"
#include "corbd/core/process.hpp"
#include "failure.hpp"
#include "filesystem_types.hpp"
#include "operations.hpp"
#include "ops.hpp"

namespace corbd::host {
namespace {

result<KernelNeeds> read_needs(const std::string& device, const FilesystemType& type) {
  const auto running = features_beyond(device, type.features, kernel_version(kernel_release()));
  if (!running) return running.error();
  const auto oldest = features_beyond(device, type.features, kOldestKernel);
  if (!oldest) return oldest.error();
  return KernelNeeds{std::string(type.name), *running, *oldest};
}

}  // namespace

std::string oldest_kernel() {
  return "Linux " + std::to_string(kOldestKernel.major) + "." + std::to_string(kOldestKernel.minor);
}

result<KernelNeeds> kernel_needs(const std::string& device, const HelperProgram& program) {
  return helper::call(operation::ReadKernelNeeds{device}, {}, program);
}

result<KernelNeeds> kernel_needs_of_new(const std::string& fstype, const std::string& options,
                                        const HelperProgram& program) {
  return helper::call(operation::TryKernelNeeds{fstype, options}, {}, program);
}

namespace ops {

result<KernelNeeds> kernel_needs(const std::string& device) {
  const auto found = probe(device);
  if (!found) return found.error();
  const auto* type = found->kind == Probe::Kind::filesystem ? filesystem_type(found->type) : nullptr;
  return type == nullptr ? KernelNeeds{} : read_needs(device, *type);
}

result<KernelNeeds> kernel_needs_of_new(const std::string& fstype, const std::string& options) {
  constexpr off_t large_enough_for_xfs = 512L * 1024 * 1024;
  const auto* type = filesystem_type(fstype);
  if (type == nullptr || type->features.empty()) return KernelNeeds{};
  // mkfs would write to that file, or copy it.
  if (!check_mkfs_options(fstype, options))
    return Error{errc::failed_precondition,
                 "mkfs." + fstype + " is not tried with options that may name another file or device"};
  // The child inherits the file by number.
  const Fd file(::memfd_create("mkfs", 0));
  if (!file || ::ftruncate(file.get(), large_enough_for_xfs) != 0) return failure("making a file in memory", errno);
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  if (auto made = run_mkfs(path, *type, options, {.zeroes = true}); !made) return made.error();
  return read_needs(path, *type);
}

}  // namespace ops
}  // namespace corbd::host
