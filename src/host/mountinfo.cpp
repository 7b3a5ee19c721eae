#include "mountinfo.hpp"

#include <fcntl.h>
#include <libmount/libmount.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <unordered_map>

#include "corbd/core/file.hpp"
#include "corbd/device/values.hpp"
#include "failure.hpp"

namespace corbd::host {
namespace {

namespace fs = std::filesystem;

struct Unref {
  void operator()(libmnt_table* table) const { mnt_unref_table(table); }
  void operator()(libmnt_iter* iterator) const { mnt_free_iter(iterator); }
};

std::string text_of(const char* from) { return from == nullptr ? std::string() : std::string(from); }

// Whether a comma-separated field holds it.
bool has_option(const std::string& options, const std::string& wanted) {
  return ("," + options + ",").find("," + wanted + ",") != std::string::npos;
}

/// Since 6.12, and in 6.1's later updates, an ext4 that stopped writing keeps the flag of its superblock (until 6.15
/// says emergency_ro); fsck takes the count of errors back.
bool stopped_writing(const Mount& mount, const std::string& filesystem_options, const std::string& ext4) {
  constexpr std::string_view dev = "/dev/";
  if (!mount.fstype.starts_with("ext") || !mount.source.starts_with(dev)) return false;
  const std::string device = mount.source.substr(dev.size());
  if (device::traits_of(device) == nullptr || !has_option(filesystem_options, "errors=remount-ro")) return false;
  const auto errors = read_file(ext4 + "/" + device + "/errors_count", 64);
  return errors && !errors->starts_with('0');
}

/// The number behind "shared:" or "master:" in the optional fields; 0 without one.
std::uint64_t peer_group(const std::string& fields, std::string_view what) {
  const std::size_t at = (" " + fields).find(" " + std::string(what));
  if (at == std::string::npos) return 0;
  std::uint64_t number = 0;
  const char* begin = fields.data() + at + what.size();
  std::from_chars(begin, fields.data() + fields.size(), number);
  return number;
}

/// "/a/b" and "c": "/a/b/c".
std::string below(const std::string& folder, const std::string& name) {
  return (folder == "/" ? "" : folder) + "/" + name;
}

struct Parent {
  const Mount* mount;
  std::uint64_t shared, master;
};

Place place_in(const Parent& parent, const std::string& target) {
  const std::string around = parent.mount->target == "/" ? "/" : parent.mount->target + "/";
  if (!target.starts_with(around) || target.size() == around.size()) return {};
  return {parent.mount->dev_major, parent.mount->dev_minor, below(parent.mount->root, target.substr(around.size())),
          parent.shared, parent.master};
}

Mount convert(libmnt_fs* line, const std::string& ext4) {
  Mount mount;
  mount.id = static_cast<std::uint64_t>(mnt_fs_get_id(line));
  const dev_t device = mnt_fs_get_devno(line);
  mount.dev_major = major(device);
  mount.dev_minor = minor(device);
  mount.root = text_of(mnt_fs_get_root(line));
  mount.target = text_of(mnt_fs_get_target(line));
  mount.fstype = text_of(mnt_fs_get_fstype(line));
  mount.source = text_of(mnt_fs_get_source(line));
  mount.options = text_of(mnt_fs_get_vfs_options(line));
  mount.read_only = has_option(mount.options, "ro");
  const std::string filesystem = text_of(mnt_fs_get_fs_options(line));
  mount.filesystem_read_only = stopped_writing(mount, filesystem, ext4);
  for (const auto* option : {"ro", "emergency_ro", "shutdown"})
    if (has_option(filesystem, option)) mount.filesystem_read_only = true;
  return mount;
}

/// The lines belong to the table.
struct Lines {
  std::unique_ptr<libmnt_table, Unref> table{mnt_new_table()};
  std::vector<libmnt_fs*> all = {};
};
result<Lines> parse(const std::string& file) {
  Lines lines;
  const std::unique_ptr<libmnt_iter, Unref> iterator(mnt_new_iter(MNT_ITER_FORWARD));
  if (!lines.table || !iterator) return Error{errc::exhausted, "no memory to read " + file};
  // Without a cache libmount resolves no path.
  const int failed = mnt_table_parse_file(lines.table.get(), file.c_str());
  if (failed != 0) return Error{errc::unavailable, "reading " + file + ": " + std::strerror(std::abs(failed))};
  libmnt_fs* line = nullptr;
  while (mnt_table_next_fs(lines.table.get(), iterator.get(), &line) == 0) lines.all.push_back(line);
  return lines;
}

bool holds(const std::string& target, const std::string& path) {
  return target == "/" || path == target || path.starts_with(target + "/");
}

}  // namespace

result<std::vector<Mount>> read_mountinfo(const std::string& file, const std::string& ext4) {
  const auto parsed = parse(file);
  if (!parsed) return parsed.error();
  const auto& lines = parsed->all;
  std::vector<Mount> mounts;
  for (libmnt_fs* line : lines) mounts.push_back(convert(line, ext4));
  std::unordered_map<std::uint64_t, Parent> by_id;
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    const std::string fields = text_of(mnt_fs_get_optional_fields(lines[i]));
    by_id[mounts[i].id] = {&mounts[i], peer_group(fields, "shared:"), peer_group(fields, "master:")};
  }
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    const auto parent = by_id.find(static_cast<std::uint64_t>(mnt_fs_get_parent_id(lines[i])));
    if (parent != by_id.end()) mounts[i].place = place_in(parent->second, mounts[i].target);
  }
  return mounts;
}

std::string device_of(const Mount& mount, const std::string& sys) {
  // A bind of a device node: raw block.
  if (mount.fstype == "devtmpfs" && mount.root.size() > 1) {
    // The kernel's word for a node whose device is gone.
    constexpr std::string_view gone = "//deleted";
    const std::string_view root = mount.root;
    return fs::path(root.ends_with(gone) ? root.substr(0, root.size() - gone.size()) : root).filename();
  }
  std::error_code failed;
  const std::string number = std::to_string(mount.dev_major) + ":" + std::to_string(mount.dev_minor);
  const fs::path link = fs::read_symlink(sys + "/dev/block/" + number, failed);
  if (!failed) return link.filename();
  // btrfs has a number of its own, as a device that is gone has none any more. The source names the device.
  return mount.source.starts_with("/dev/") ? fs::path(mount.source).filename().string() : std::string();
}

std::optional<bool> propagates(const std::string& file, const std::string& path) {
  const auto parsed = parse(file);
  if (!parsed) return std::nullopt;
  std::optional<bool> shared;
  std::size_t longest = 0;
  for (libmnt_fs* line : parsed->all) {
    const std::string target = text_of(mnt_fs_get_target(line));
    // If two are mounted at one place, the later line is on top.
    if (!holds(target, path) || target.size() < longest) continue;
    longest = target.size();
    shared = peer_group(text_of(mnt_fs_get_optional_fields(line)), "shared:") != 0;
  }
  return shared;
}

result<MountTable> MountReader::read() {
  constexpr const char* path = "/proc/self/mountinfo";
  if (!file_) file_ = Fd(::open(path, O_RDONLY | O_CLOEXEC));
  // The poll comes before the read, so a change in between shows at the next poll.
  pollfd changed{file_.get(), POLLPRI, 0};
  const bool same = file_ && ::poll(&changed, 1, 0) == 0;
  const auto now = std::chrono::steady_clock::now();
  if (same && known_ && now - read_at_ < lasts_) return known_;
  read_at_ = now;
  known_.reset();
  auto read = read_mountinfo(path);
  if (!read) return read.error();
  known_ = std::make_shared<const std::vector<Mount>>(std::move(*read));
  return known_;
}

result<std::optional<Mount>> mount_at(int fd, const std::string& path) {
  struct statx found{};
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &found) != 0)
    return failure("looking at " + path, errno);
  if ((found.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) == 0 || (found.stx_mask & STATX_MNT_ID) == 0)
    return Error{errc::failed_precondition,
                 "the kernel does not say which mount " + path + " is: run Linux 5.12 or newer"};
  if ((found.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0) return std::optional<Mount>();
  auto mounts = read_mountinfo("/proc/self/mountinfo");
  if (!mounts) return mounts.error();
  const auto place =
      std::find_if(mounts->begin(), mounts->end(), [&](const Mount& mount) { return mount.id == found.stx_mnt_id; });
  if (place == mounts->end())
    return Error{errc::unavailable, path + " was mounted or unmounted by someone else just now"};
  return std::optional(std::move(*place));
}

}  // namespace corbd::host
