#include "mount_calls.hpp"

#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "failure.hpp"
#include "mountinfo.hpp"

namespace corbd::host {
namespace {

// Debian 12's headers know neither call. Numbers and structures are those of include/uapi/linux/mount.h.
constexpr long kStatmount = 457, kListmount = 458;
constexpr std::uint64_t kOfRoot = ~std::uint64_t{0};  // LSMT_ROOT
constexpr std::uint64_t kSuperblock = 0x1, kBasic = 0x2, kRoot = 0x8, kPoint = 0x10, kType = 0x20, kOptions = 0x80,
                        kSubtype = 0x100, kSource = 0x200;

struct Request {
  std::uint32_t size = sizeof(Request), spare = 0;
  std::uint64_t mount = 0, parameter = 0;
};
static_assert(sizeof(Request) == 24);  // MNT_ID_REQ_SIZE_VER0

struct Answer {
  std::uint32_t size, options;
  std::uint64_t mask;
  std::uint32_t dev_major, dev_minor;
  std::uint64_t magic;
  std::uint32_t superblock_flags, type;
  std::uint64_t id, parent_id;
  std::uint32_t old_id, old_parent_id;
  std::uint64_t attributes, propagation, peer_group, master, propagates_from;
  std::uint32_t root, point;
  std::uint64_t name_space;
  std::uint32_t subtype, source;
  std::array<std::uint64_t, 48> later;
};
static_assert(offsetof(Answer, root) == 104 && offsetof(Answer, source) == 124 && sizeof(Answer) == 512);

/// Returns the flags of a mount as mountinfo spells them.
std::string text_of_flags(std::uint64_t attributes) {
  constexpr std::uint64_t times = 0x70;
  struct Flag {
    std::uint64_t mask, value;
    const char* text;
  };
  constexpr std::array<Flag, 8> flags{{{0x2, 0x2, ",nosuid"},
                                       {0x4, 0x4, ",nodev"},
                                       {0x8, 0x8, ",noexec"},
                                       {times, 0x10, ",noatime"},
                                       {0x80, 0x80, ",nodiratime"},
                                       {times, 0, ",relatime"},
                                       {0x200000, 0x200000, ",nosymfollow"},
                                       {0x100000, 0x100000, ",idmapped"}}};
  std::string text = (attributes & 1) != 0 ? "ro" : "rw";
  for (const auto& flag : flags)
    if ((attributes & flag.mask) == flag.value) text += flag.text;
  return text;
}

Described described_by(const std::vector<std::byte>& buffer) {
  Answer told{};
  std::memcpy(&told, buffer.data(), sizeof told);
  const auto text = [&](std::uint64_t mask, std::uint32_t offset) {
    return (told.mask & mask) == 0 ? std::string()
                                   : std::string(reinterpret_cast<const char*>(buffer.data() + sizeof told + offset));
  };
  Described made;
  Mount& mount = made.row.mount;
  mount.id = told.old_id;
  mount.dev_major = told.dev_major;
  mount.dev_minor = told.dev_minor;
  mount.root = text(kRoot, told.root);
  mount.target = text(kPoint, told.point);
  mount.fstype = text(kType, told.type);
  if (const auto subtype = text(kSubtype, told.subtype); !subtype.empty()) mount.fstype += "." + subtype;
  mount.source = text(kSource, told.source);
  mount.options = text_of_flags(told.attributes);
  constexpr std::uint32_t read_only = 0x1;  // SB_RDONLY
  const std::string filesystem = (told.superblock_flags & read_only) != 0 ? "ro" : "rw";
  const std::string own = text(kOptions, told.options);
  add_state(mount, own.empty() ? filesystem : filesystem + "," + own, kErrorCounts);
  made.row.kin.parent = told.old_parent_id;
  if ((told.propagation & MS_SHARED) != 0) made.row.kin.shared = told.peer_group;
  made.row.kin.master = told.master;
  made.has_source = (told.mask & kSource) != 0;
  return made;
}

}  // namespace

result<std::vector<std::uint64_t>> list_mounts() {
  constexpr std::size_t at_once = 1024;
  std::vector<std::uint64_t> all;
  for (Request request{.mount = kOfRoot};;) {
    const std::size_t before = all.size();
    all.resize(before + at_once);
    const long listed = ::syscall(kListmount, &request, all.data() + before, at_once, 0);
    if (listed < 0 && (errno == ENOSYS || errno == EPERM)) return Error{errc::unimplemented, "no listmount"};
    if (listed < 0) return failure("listing the mounts", errno);
    all.resize(before + static_cast<std::size_t>(listed));
    if (listed < static_cast<long>(at_once)) return all;
    request.parameter = all.back();
  }
}

result<std::optional<Described>> describe_mount(std::uint64_t unique_id) {
  constexpr std::size_t usual = 4096, longest = 1 << 20;
  const Request request{.mount = unique_id,
                        .parameter = kSuperblock | kBasic | kRoot | kPoint | kType | kOptions | kSubtype | kSource};
  for (std::vector<std::byte> buffer(usual);; buffer.resize(2 * buffer.size())) {
    if (::syscall(kStatmount, &request, buffer.data(), buffer.size(), 0) == 0)
      return std::optional(described_by(buffer));
    if (errno == ENOENT) return std::optional<Described>();
    if (errno == ENOSYS || errno == EPERM) return Error{errc::unimplemented, "no statmount"};
    if (errno != EOVERFLOW || buffer.size() > longest) return failure("looking at a mount", errno);
  }
}

}  // namespace corbd::host
