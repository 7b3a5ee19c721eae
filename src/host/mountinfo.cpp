#include "mountinfo.hpp"

#include <fcntl.h>
#include <libmount/libmount.h>
#include <poll.h>
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
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "corbd/core/file.hpp"
#include "corbd/device/values.hpp"
#include "failure.hpp"
#include "filesystem_types.hpp"

namespace corbd::host {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMountinfo = "/proc/self/mountinfo";
// Time for which an unchanged line is not parsed again. The line does not show that an ext4 counted an error.
constexpr std::chrono::seconds kKeepsLines{1};

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

/// Joins "/a/b" and "c" to "/a/b/c".
std::string below(const std::string& folder, const std::string& name) {
  return (folder == "/" ? "" : folder) + "/" + name;
}

Place place_in(const Mount& parent, const MountLines::Line& line, const std::string& target) {
  const std::string around = parent.target == "/" ? "/" : parent.target + "/";
  if (!target.starts_with(around) || target.size() == around.size()) return {};
  return {parent.dev_major, parent.dev_minor, below(parent.root, target.substr(around.size())), line.shared,
          line.master};
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
  // The source of such a type is the device, or a link to it.
  const auto* type = filesystem_type(mount.fstype);
  struct stat node{};
  if (type != nullptr && type->mounts_as_number_of_its_own && mount.source.starts_with("/dev/") &&
      ::stat(mount.source.c_str(), &node) == 0 && S_ISBLK(node.st_mode)) {
    mount.dev_major = major(node.st_rdev);
    mount.dev_minor = minor(node.st_rdev);
  }
  mount.options = text_of(mnt_fs_get_vfs_options(line));
  mount.read_only = has_option(mount.options, "ro");
  const std::string filesystem = text_of(mnt_fs_get_fs_options(line));
  mount.filesystem_read_only = stopped_writing(mount, filesystem, ext4);
  for (const auto* option : {"ro", "emergency_ro", "shutdown"})
    if (has_option(filesystem, option)) mount.filesystem_read_only = true;
  return mount;
}

/// Returns nothing if libmount would skip the line. `file` is for messages.
result<std::optional<std::pair<MountLines::Line, Mount>>> parse(std::string_view text, const std::string& file,
                                                                const std::string& ext4) {
  MountLines::Line line{std::string(text)};
  const std::unique_ptr<libmnt_table, Unref> table(mnt_new_table());
  const std::unique_ptr<std::FILE, Close> stream(::fmemopen(line.text.data(), line.text.size(), "r"));
  if (!table || !stream) return Error{errc::exhausted, "no memory to read " + file};
  // Without a cache libmount resolves no path.
  const int failed = mnt_table_parse_stream(table.get(), stream.get(), file.c_str());
  if (failed != 0) return Error{errc::unavailable, "reading " + file + ": " + std::strerror(std::abs(failed))};
  libmnt_fs* found = nullptr;
  if (mnt_table_first_fs(table.get(), &found) != 0) return std::optional<std::pair<MountLines::Line, Mount>>();
  const std::string fields = text_of(mnt_fs_get_optional_fields(found));
  line.parent = static_cast<std::uint64_t>(mnt_fs_get_parent_id(found));
  line.shared = peer_group(fields, "shared:");
  line.master = peer_group(fields, "master:");
  return std::optional(std::pair(std::move(line), convert(found, ext4)));
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

/// Finds each mount's place from its own line and its parent's. `changed`: the IDs of changed lines.
void find_places(MountLines& all, const std::unordered_set<std::uint64_t>& changed) {
  std::unordered_map<std::uint64_t, std::size_t> by_id;
  by_id.reserve(all.mounts.size());
  for (std::size_t i = 0; i < all.mounts.size(); ++i) by_id[all.mounts[i].id] = i;
  for (std::size_t i = 0; i < all.mounts.size(); ++i) {
    Mount& mount = all.mounts[i];
    const std::uint64_t parent_id = all.lines[i].parent;
    if (!changed.contains(mount.id) && !changed.contains(parent_id)) continue;
    const auto parent = by_id.find(parent_id);
    mount.place =
        parent == by_id.end() ? Place() : place_in(all.mounts[parent->second], all.lines[parent->second], mount.target);
  }
}

}  // namespace

result<MountLines> parse_mounts(std::string_view text, const std::string& file, MountLines before,
                                const std::string& ext4) {
  MountLines now;
  now.lines.reserve(before.lines.size() + 1);
  now.mounts.reserve(before.mounts.size() + 1);
  std::unordered_set<std::uint64_t> changed;
  std::size_t next = 0;  // position in `before`: lines keep their order
  const auto drop_until = [&](std::size_t end) {
    for (; next < end; ++next) changed.insert(before.mounts[next].id);
  };
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    std::size_t same = next;
    while (same < before.lines.size() && before.lines[same].text != line) ++same;
    if (same < before.lines.size()) {
      drop_until(same);
      now.lines.push_back(std::move(before.lines[next]));
      now.mounts.push_back(std::move(before.mounts[next]));
      ++next;
      continue;
    }
    auto parsed = parse(line, file, ext4);
    if (!parsed) return parsed.error();
    if (!*parsed) continue;
    changed.insert((*parsed)->second.id);
    now.lines.push_back(std::move((*parsed)->first));
    now.mounts.push_back(std::move((*parsed)->second));
  }
  drop_until(before.lines.size());
  find_places(now, changed);
  return now;
}

result<std::vector<Mount>> read_mountinfo(const std::string& file, const std::string& ext4) {
  auto text = text_of_file(file);
  if (!text) return text.error();
  auto parsed = parse_mounts(*text, file, {}, ext4);
  if (!parsed) return parsed.error();
  return std::move(parsed->mounts);
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
  for (std::size_t i = 0; i < parsed->mounts.size(); ++i) {
    const std::string& target = parsed->mounts[i].target;
    // If two are mounted at one place, the later line is on top.
    if (!holds(target, path) || target.size() < longest) continue;
    longest = target.size();
    shared = parsed->lines[i].shared != 0;
  }
  return shared;
}

result<MountTable> MountReader::read() {
  if (!file_) file_ = Fd(::open(kMountinfo, O_RDONLY | O_CLOEXEC));
  // The poll comes before the read, so a change in between shows at the next poll.
  pollfd changed{file_.get(), POLLPRI, 0};
  const bool same = file_ && ::poll(&changed, 1, 0) == 0;
  const auto now = std::chrono::steady_clock::now();
  if (same && known_ && now - parsed_all_at_ < lasts_) return MountTable(known_, &known_->mounts);
  const auto before = std::exchange(known_, nullptr);
  const auto text = text_of_file(kMountinfo);
  if (!text) return text.error();
  MountLines kept;
  if (before && now - parsed_all_at_ < kKeepsLines)
    kept = before.use_count() == 1 ? std::move(*before) : *before;
  else
    parsed_all_at_ = now;
  auto parsed = parse_mounts(*text, kMountinfo, std::move(kept));
  if (!parsed) return parsed.error();
  known_ = std::make_shared<MountLines>(std::move(*parsed));
  return MountTable(known_, &known_->mounts);
}

result<std::optional<Mount>> mount_at(int fd, const std::string& path) {
  const auto root = root_of_mount(fd, path);
  if (!root) return root.error();
  if (!root->is_root && !root->place) return std::optional<Mount>();
  const auto text = text_of_file(kMountinfo);
  if (!text) return text.error();
  auto there = parse_mounts(line_of(*text, root->mount), kMountinfo, {});
  if (!there) return there.error();
  if (there->mounts.empty())
    return Error{errc::unavailable, path + " was mounted or unmounted by someone else just now"};
  if (root->place && *root->place != there->mounts.front().target) return std::optional<Mount>();
  return std::optional(std::move(there->mounts.front()));
}

}  // namespace corbd::host
