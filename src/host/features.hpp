// What a superblock asks of a kernel: feature bits that came after the oldest kernel that docs/serving.md promises.
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
/// docs/serving.md promises it. Filesystems are made for it, wherever they are made: a volume moves to other nodes, and
/// back to ceph-csi.
inline constexpr KernelVersion kOldestKernel{5, 14};

/// "6.12.35-generic": its first two numbers, {0, 0} without them.
KernelVersion kernel_version(std::string_view release);

struct Feature {
  std::uint64_t bit;
  std::string_view name;
  KernelVersion since;
};

/// A word of the superblock whose unknown bits keep a kernel from mounting the filesystem.
struct FeatureWord {
  std::size_t at;     ///< bytes from the start of the device
  std::size_t bytes;  ///< its length
  bool big_endian;
  std::uint64_t known;  ///< bits of kOldestKernel
  std::span<const Feature> newer;
};

/// What `kernel` may not know of the filesystem on the device: "parent (Linux 6.10)". Empty: nothing. A distribution's
/// kernel may know more than its number says.
result<std::string> features_beyond(const std::string& device, std::span<const FeatureWord> words,
                                    KernelVersion kernel);

}  // namespace corbd::host
