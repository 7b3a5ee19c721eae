// Finds the kernel features that a filesystem needs. For a thread that may block, because the device may not answer.
#pragma once

#include <string>

#include "corbd/core/fields.hpp"
#include "corbd/core/helper_call.hpp"
#include "corbd/core/result.hpp"

namespace corbd::host {

/// Features as text: "parent (Linux 6.10)". Empty: the kernel knows them all.
struct KernelNeeds {
  std::string fstype;          ///< empty: no filesystem that this agent knows
  std::string beyond_running;  ///< features beyond this kernel's version; a distribution's kernel may have more
  std::string beyond_oldest;   ///< features beyond oldest_kernel()
  static constexpr std::tuple fields{fields::required("fstype", &KernelNeeds::fstype),
                                     fields::required("beyond_running", &KernelNeeds::beyond_running),
                                     fields::required("beyond_oldest", &KernelNeeds::beyond_oldest)};
};

/// Returns "Linux 5.14": the oldest kernel that docs/serving.md promises.
std::string oldest_kernel();

/// Examines the filesystem on the device. A helper reads it: see call_helper().
result<KernelNeeds> kernel_needs(const std::string& device, const HelperProgram& helper = {});
/// Examines a new filesystem, which a helper makes in memory. Empty options are this agent's own. `fstype` in the
/// result is empty for a type whose features this agent does not read.
result<KernelNeeds> kernel_needs_of_new(const std::string& fstype, const std::string& options,
                                        const HelperProgram& helper = {});

}  // namespace corbd::host
