// Kernel features that a superblock requires: feature bits that came after the oldest kernel that docs/serving.md
// promises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::host {

struct KernelVersion {
  unsigned major = 0, minor = 0;
  auto operator<=>(const KernelVersion&) const = default;
};
/// The oldest kernel of docs/serving.md. Filesystems are made for it on every node, because a volume moves to other
/// nodes, and back to ceph-csi.
inline constexpr KernelVersion kOldestKernel{5, 14};

/// Returns the first two numbers of "6.12.35-generic", or {0, 0}.
KernelVersion kernel_version(std::string_view release);

struct Feature {
  std::uint64_t bit;
  std::string_view name;
  KernelVersion since;
};

/// A word of the superblock whose unknown bits keep a kernel from mounting the filesystem.
struct FeatureWord {
  std::size_t at;     ///< bytes from the start of the device
  std::size_t bytes;  ///< length in bytes
  bool big_endian;
  std::uint64_t known;  ///< bits that kOldestKernel knows
  std::span<const Feature> newer;
};

/// Returns features of the filesystem on the device that `kernel` may not know: "parent (Linux 6.10)". Empty: none. A
/// distribution's kernel may know more than its version says.
result<std::string> features_beyond(const std::string& device, std::span<const FeatureWord> words,
                                    KernelVersion kernel);

}  // namespace corbd::host
