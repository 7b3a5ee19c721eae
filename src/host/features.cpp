#include "features.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "corbd/core/fd.hpp"
#include "failure.hpp"

namespace corbd::host {
namespace {

result<std::uint64_t> read_word(int device, const FeatureWord& word, const std::string& path) {
  std::array<unsigned char, sizeof(std::uint64_t)> raw{};
  const ssize_t got = ::pread(device, raw.data(), word.bytes, static_cast<off_t>(word.at));
  if (got != static_cast<ssize_t>(word.bytes))
    return failure("reading the superblock of " + path, got < 0 ? errno : EIO);
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < word.bytes; ++i) value = value << 8 | raw[word.big_endian ? i : word.bytes - 1 - i];
  return value;
}

std::string hex(std::uint64_t bits) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), bits, 16).ptr;
  return "0x" + std::string(digits.data(), end);
}

}  // namespace

KernelVersion kernel_version(std::string_view release) {
  KernelVersion version;
  const char* end = release.data() + release.size();
  const auto major = std::from_chars(release.data(), end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return {};
  if (std::from_chars(major.ptr + 1, end, version.minor).ec != std::errc()) return {};
  return version;
}

result<std::string> features_beyond(const std::string& device, std::span<const FeatureWord> words,
                                    KernelVersion kernel) {
  const Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failure("opening " + device, errno);
  std::string text;
  const auto add = [&](const std::string& feature) { text += (text.empty() ? "" : ", ") + feature; };
  for (const FeatureWord& word : words) {
    const auto bits = read_word(fd.get(), word, device);
    if (!bits) return bits.error();
    std::uint64_t unknown = *bits & ~word.known;
    for (const Feature& feature : word.newer) {
      if ((unknown & feature.bit) == 0) continue;
      unknown &= ~feature.bit;
      if (kernel < feature.since)
        add(std::string(feature.name) + " (Linux " + std::to_string(feature.since.major) + "." +
            std::to_string(feature.since.minor) + ")");
    }
    if (unknown != 0) add("features that this agent does not know (" + hex(unknown) + ")");
  }
  return text;
}

}  // namespace corbd::host
