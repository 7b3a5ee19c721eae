#include "mountinfo.hpp"

#include <fcntl.h>
#include <libmount/libmount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "corbd/core/file.hpp"
#include "corbd/device/values.hpp"
#include "failure.hpp"
#include "filesystem_types.hpp"
#include "mount_calls.hpp"

namespace corbd::host {
namespace {

namespace fs = std::filesystem;

struct Unref {
  void operator()(libmnt_table* table) const { mnt_unref_table(table); }
};
struct Close {
  void operator()(std::FILE* stream) const { std::fclose(stream); }
};

std::string text_of(const char* from) { return from == nullptr ? std::string() : std::string(from); }

// Whether a comma-separated field contains the option.
bool has_option(const std::string& options, const std::string& wanted) {
  return ("," + options + ",").find("," + wanted + ",") != std::string::npos;
}

/// Since 6.12, and in 6.1's later updates, an ext4 that stopped writing keeps the flag of its superblock (until 6.15
/// says emergency_ro). fsck resets the count of errors.
bool stopped_writing(const Mount& mount, const std::string& filesystem_options, const std::string& ext4) {
  constexpr std::string_view dev = "/dev/";
  if (!mount.fstype.starts_with("ext") || !mount.source.starts_with(dev)) return false;
  const std::string device = mount.source.substr(dev.size());
  if (device::traits_of(device) == nullptr || !has_option(filesystem_options, "errors=remount-ro")) return false;
  const auto errors = read_file(ext4 + "/" + device + "/errors_count", 64);
  return errors && !errors->starts_with('0');
}

/// Returns the number behind "shared:" or "master:" in the optional fields; 0 without one.
std::uint64_t peer_group(const std::string& fields, std::string_view what) {
  const std::size_t at = (" " + fields).find(" " + std::string(what));
  if (at == std::string::npos) return 0;
  std::uint64_t number = 0;
  const char* begin = fields.data() + at + what.size();
  std::from_chars(begin, fields.data() + fields.size(), number);
  return number;
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
  add_state(mount, text_of(mnt_fs_get_fs_options(line)), ext4);
  return mount;
}

/// Returns nothing if libmount would skip the line. `file` is for messages.
result<std::optional<MountList::Row>> parse(std::string_view text, const std::string& file, const std::string& ext4) {
  std::string line(text);
  const std::unique_ptr<libmnt_table, Unref> table(mnt_new_table());
  const std::unique_ptr<std::FILE, Close> stream(::fmemopen(line.data(), line.size(), "r"));
  if (!table || !stream) return Error{errc::exhausted, "no memory to read " + file};
  // Without a cache libmount resolves no path.
  const int failed = mnt_table_parse_stream(table.get(), stream.get(), file.c_str());
  if (failed != 0) return Error{errc::unavailable, "reading " + file + ": " + std::strerror(std::abs(failed))};
  libmnt_fs* found = nullptr;
  if (mnt_table_first_fs(table.get(), &found) != 0) return std::optional<MountList::Row>();
  const std::string fields = text_of(mnt_fs_get_optional_fields(found));
  const auto parent = static_cast<std::uint64_t>(mnt_fs_get_parent_id(found));
  return std::optional(
      MountList::Row{convert(found, ext4), {parent, peer_group(fields, "shared:"), peer_group(fields, "master:")}});
}

result<std::string> text_of_file(const std::string& file) {
  constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
  auto text = read_file(file, no_limit);
  if (!text) return Error{errc::unavailable, text.error().text};
  return text;
}

bool holds(const std::string& target, const std::string& path) {
  return target == "/" || path == target || path.starts_with(target + "/");
}

/// Removes the first line, and returns it without its end.
std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

/// Returns an empty line if none has that ID.
std::string_view line_of(std::string_view text, std::uint64_t id) {
  const std::string begin = std::to_string(id) + " ";
  while (!text.empty())
    if (const auto line = next_line(text); line.starts_with(begin)) return line;
  return {};
}

/// Reads the mount ID of a descriptor's file in /proc/self/fdinfo; 0: there is none.
std::uint64_t mount_id_of(std::string_view fdinfo) {
  constexpr std::string_view key = "mnt_id:\t";
  std::uint64_t id = 0;
  while (!fdinfo.empty())
    if (const auto line = next_line(fdinfo); line.starts_with(key))
      std::from_chars(line.data() + key.size(), line.data() + line.size(), id);
  return id;
}

/// The mount that a descriptor is on, and whether it is that mount's root.
struct OnMount {
  std::uint64_t mount = 0;
  bool is_root = false;
  std::optional<std::string> place;  ///< its place by /proc, if the filesystem did not say whether it is a root
};

result<OnMount> root_of_mount(int fd, const std::string& path) {
  struct statx found{};
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &found) == 0) {
    if ((found.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) == 0 || (found.stx_mask & STATX_MNT_ID) == 0)
      return Error{errc::failed_precondition,
                   "the kernel does not say which mount " + path + " is: run Linux 5.12 or newer"};
    return OnMount{found.stx_mnt_id, (found.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0, {}};
  }
  // This is an xfs that has shut down after an error, and must be unmounted all the same. /proc does not ask the
  // filesystem, but shows a removed device node with the suffix " (deleted)".
  if (errno != EIO) return failure("looking at " + path, errno);
  const auto told = text_of_file("/proc/self/fdinfo/" + std::to_string(fd));
  if (!told) return told.error();
  std::error_code failed;
  const auto opened = fs::read_symlink("/proc/self/fd/" + std::to_string(fd), failed);
  if (failed) return failure("looking at " + path, failed.value());
  return OnMount{mount_id_of(*told), false, opened.string()};
}

/// Returns the mount that the descriptor is on, without the table of all mounts. Absent: the kernel cannot say (before
/// Linux 6.14), or the mount is gone.
std::optional<Mount> described(int fd) {
  constexpr unsigned unique_id = 0x4000;  // STATX_MNT_ID_UNIQUE
  struct statx found{};
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, unique_id, &found) != 0 || (found.stx_mask & unique_id) == 0)
    return std::nullopt;
  auto told = describe_mount(found.stx_mnt_id);
  if (!told || !*told || !(*told)->has_source) return std::nullopt;
  return std::move((*told)->row.mount);
}

}  // namespace

void add_state(Mount& mount, const std::string& filesystem_options, const std::string& ext4) {
  // The source of such a type is the device, or a link to it.
  const auto* type = filesystem_type(mount.fstype);
  struct stat node{};
  if (type != nullptr && type->mounts_as_number_of_its_own && mount.source.starts_with("/dev/") &&
      ::stat(mount.source.c_str(), &node) == 0 && S_ISBLK(node.st_mode)) {
    mount.dev_major = major(node.st_rdev);
    mount.dev_minor = minor(node.st_rdev);
  }
  mount.read_only = has_option(mount.options, "ro");
  mount.filesystem_read_only = stopped_writing(mount, filesystem_options, ext4);
  for (const auto* option : {"ro", "emergency_ro", "shutdown"})
    if (has_option(filesystem_options, option)) mount.filesystem_read_only = true;
}

result<MountLines> parse_mounts(std::string_view text, const std::string& file, MountLines before,
                                const std::string& ext4) {
  MountLines now;
  now.lines.reserve(before.lines.size() + 1);
  std::vector<std::uint64_t> gone;
  std::map<std::size_t, MountList::Row> added;  // by position in now.lines
  bool at_the_end = true;                       // no added line is before one that stays
  std::size_t next = 0;                         // position in `before`: lines keep their order
  const auto drop_until = [&](std::size_t end) {
    for (; next < end; ++next) gone.push_back(before.lines[next].at);
  };
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    std::size_t same = next;
    while (same < before.lines.size() && before.lines[same].text != line) ++same;
    if (same < before.lines.size()) {
      drop_until(same);
      at_the_end = at_the_end && added.empty();
      now.lines.push_back(std::move(before.lines[next++]));
      continue;
    }
    auto parsed = parse(line, file, ext4);
    if (!parsed) return parsed.error();
    if (!*parsed) continue;
    added.emplace(now.lines.size(), std::move(**parsed));
    now.lines.push_back({std::string(line), 0});
  }
  drop_until(before.lines.size());
  if (!at_the_end) {
    for (std::size_t i = 0; i < now.lines.size(); ++i) {
      const auto fresh = added.find(i);
      now.list.put(i, fresh != added.end() ? std::move(fresh->second) : before.list.rows().at(now.lines[i].at));
      now.lines[i].at = i;
    }
    return now;
  }
  now.list = std::move(before.list);
  for (const std::uint64_t at : gone) now.list.remove(at);
  for (auto& [position, row] : added) {
    const auto& rows = now.list.rows();
    now.lines[position].at = rows.empty() ? 0 : rows.rbegin()->first + 1;
    now.list.put(now.lines[position].at, std::move(row));
  }
  return now;
}

result<std::vector<Mount>> read_mountinfo(const std::string& file, const std::string& ext4) {
  auto text = text_of_file(file);
  if (!text) return text.error();
  const auto parsed = parse_mounts(*text, file, {}, ext4);
  if (!parsed) return parsed.error();
  std::vector<Mount> all;
  for (const auto& [at, row] : parsed->list.rows()) all.push_back(row.mount);
  return all;
}

std::string device_of(const Mount& mount, const std::string& sys) {
  // This is a bind of a device node: raw block.
  if (mount.fstype == "devtmpfs" && mount.root.size() > 1) {
    // The kernel's suffix for a node whose device is gone.
    constexpr std::string_view gone = "//deleted";
    const std::string_view root = mount.root;
    return fs::path(root.ends_with(gone) ? root.substr(0, root.size() - gone.size()) : root).filename();
  }
  std::error_code failed;
  const std::string number = std::to_string(mount.dev_major) + ":" + std::to_string(mount.dev_minor);
  const fs::path link = fs::read_symlink(sys + "/dev/block/" + number, failed);
  if (!failed) return link.filename();
  // A removed device has no number any more. The source names it.
  return mount.source.starts_with("/dev/") ? fs::path(mount.source).filename().string() : std::string();
}

std::optional<bool> propagates(const std::string& file, const std::string& path) {
  const auto text = text_of_file(file);
  const auto parsed = text ? parse_mounts(*text, file, {}) : text.error();
  if (!parsed) return std::nullopt;
  std::optional<bool> shared;
  std::size_t longest = 0;
  for (const auto& [at, row] : parsed->list.rows()) {
    const std::string& target = row.mount.target;
    // If two are mounted at one place, the later line is on top.
    if (!holds(target, path) || target.size() < longest) continue;
    longest = target.size();
    shared = row.kin.shared != 0;
  }
  return shared;
}

result<std::optional<Mount>> mount_at(int fd, const std::string& path) {
  const auto root = root_of_mount(fd, path);
  if (!root) return root.error();
  if (!root->is_root && !root->place) return std::optional<Mount>();
  if (root->is_root)
    if (auto told = described(fd)) return told;
  const auto text = text_of_file(kMountinfo);
  if (!text) return text.error();
  auto there = parse_mounts(line_of(*text, root->mount), kMountinfo, {});
  if (!there) return there.error();
  if (there->list.rows().empty())
    return Error{errc::unavailable, path + " was mounted or unmounted by someone else just now"};
  const Mount& mount = there->list.rows().begin()->second.mount;
  if (root->place && *root->place != mount.target) return std::optional<Mount>();
  return std::optional(mount);
}

}  // namespace corbd::host
