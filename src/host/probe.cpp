#include <blkid/blkid.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include "corbd/core/fd.hpp"
#include "failure.hpp"
#include "ops.hpp"

namespace corbd::host::ops {
namespace {

struct FreeProbe {
  void operator()(blkid_probe probe) const { blkid_free_probe(probe); }
};
using BlkidProbe = std::unique_ptr<std::remove_pointer_t<blkid_probe>, FreeProbe>;

constexpr int kFound = 0, kNothing = 1, kAmbivalent = -2;  // results of blkid_do_safeprobe

std::string value(blkid_probe probe, const char* name) {
  const char* text = nullptr;
  if (blkid_probe_lookup_value(probe, name, &text, nullptr) != 0 || text == nullptr) return {};
  return text;
}

Probe what_was_found(blkid_probe probe) {
  const std::string type = value(probe, "TYPE");
  // Any partition table makes it "unknown data", as in ceph-csi.
  if (!value(probe, "PTTYPE").empty()) return {Probe::Kind::partitions, value(probe, "PTTYPE")};
  if (value(probe, "USAGE") == "filesystem") return {Probe::Kind::filesystem, type};
  return {Probe::Kind::other, type};
}

/// Asks for blkid's findings one after the other, because libblkid 2.41 answers -1 where it means ambivalent (seen on
/// Debian 13).
bool finds_several(blkid_probe probe) {
  blkid_reset_probe(probe);
  int found = 0;
  while (found < 2 && blkid_do_probe(probe) == kFound) ++found;
  return found > 1;
}

result<Probe> look(int fd, const std::string& device, int extra_flags) {
  const BlkidProbe probe(blkid_new_probe());
  if (!probe) return Error{errc::exhausted, "no memory to probe " + device};
  errno = 0;
  if (blkid_probe_set_device(probe.get(), fd, 0, 0) != 0) return failure("probing " + device, errno == 0 ? EIO : errno);
  if (blkid_probe_get_size(probe.get()) <= 0) return Error{errc::unavailable, "probing " + device + ": it has no size"};
  blkid_probe_enable_superblocks(probe.get(), 1);
  blkid_probe_set_superblocks_flags(probe.get(),
                                    BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE | BLKID_SUBLKS_MAGIC | extra_flags);
  blkid_probe_enable_partitions(probe.get(), 1);
  errno = 0;
  switch (blkid_do_safeprobe(probe.get())) {
    case kFound:
      return what_was_found(probe.get());
    case kNothing:
      return Probe{Probe::Kind::nothing, ""};
    case kAmbivalent:
      return Probe{Probe::Kind::ambivalent, ""};
    default: {
      const int number = errno;
      if (number == 0 && finds_several(probe.get())) return Probe{Probe::Kind::ambivalent, ""};
      return failure("probing " + device, number == 0 ? EIO : number);
    }
  }
}

// Reads the places of the signatures, because blkid ignores some failed reads. They must be readable before we believe
// that there are none.
result<> check_readable(int fd, const std::string& device) {
  constexpr off_t head = 512 * 1024, tail = 128 * 1024;
  const off_t size = ::lseek(fd, 0, SEEK_END);
  if (size <= 0) return failure("finding the size of " + device, size < 0 ? errno : ENXIO);
  std::vector<char> buffer(static_cast<std::size_t>(head));
  struct Range {
    off_t at, length;
  };
  for (const Range range :
       {Range{0, std::min(head, size)}, Range{std::max<off_t>(0, size - tail), std::min(tail, size)}}) {
    const ssize_t got = ::pread(fd, buffer.data(), static_cast<std::size_t>(range.length), range.at);
    if (got != range.length) return failure("reading " + device, got < 0 ? errno : EIO);
  }
  return {};
}

}  // namespace

result<Probe> probe(const std::string& device) {
  const Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failure("opening " + device, errno);
  auto found = look(fd.get(), device, 0);
  if (!found || found->kind != Probe::Kind::nothing) return found;
  if (auto readable = check_readable(fd.get(), device); !readable) return readable.error();
  // A superblock with a wrong checksum is no filesystem, but it is not nothing either.
  auto damaged = look(fd.get(), device, BLKID_SUBLKS_BADCSUM);
  if (!damaged || damaged->kind == Probe::Kind::nothing) return damaged;
  return Probe{Probe::Kind::other, damaged->type + " with a wrong checksum"};
}

}  // namespace corbd::host::ops
