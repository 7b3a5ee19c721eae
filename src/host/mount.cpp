// Implements ops::mount and ops::bind on the descriptor-based calls: the mount gets its flags before it is visible, and
// the target cannot be swapped for a link in between.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "failure.hpp"
#include "filesystem_types.hpp"
#include "flags.hpp"
#include "mountinfo.hpp"
#include "ops.hpp"
#include "target.hpp"

namespace corbd::host::ops {
namespace {

// Returns the messages that the filesystem wrote into the context's log: "e ext4: Unrecognized mount option".
std::string complaints(int context) {
  std::string all;
  std::array<char, 512> line;
  constexpr int enough = 8;
  for (int i = 0; i < enough; ++i) {
    const ssize_t got = ::read(context, line.data(), line.size());
    if (got <= 0) break;
    std::string_view message(line.data(), static_cast<std::size_t>(got));
    while (!message.empty() && message.back() == '\n') message.remove_suffix(1);
    if (message.size() > 2 && message[1] == ' ') message.remove_prefix(2);
    all += all.empty() ? " (" : "; ";
    all += message;
  }
  return all.empty() ? all : all + ")";
}

Error mount_failure(const std::string& doing, int context) {
  const int error = errno;
  Error failed = failure(doing, error);
  if (context >= 0) failed.text += complaints(context);
  return failed;
}

/// Whether it is EFSCORRUPTED or EFSBADCRC, as filesystems call them. No repeat helps: a check has mended all it can.
bool is_damage(int error) { return error == EUCLEAN || error == EBADMSG; }

/// Explains errors whose reason the kernel writes only to its log.
std::string reason(const FilesystemType* type, const std::string& device, int error) {
  if (type == nullptr) return "";
  // A writable mount of a read-only device fails with EACCES.
  if (error == EROFS && !type->without_journal.empty())
    return ": if its journal holds changes, for example because the image was copied while it was mounted, a read-only "
           "device cannot take them. Stage the volume writable once, or mount it with " +
           std::string(type->without_journal) + ", which shows it as it was before them and perhaps inconsistent";
  if (is_damage(error)) return ": the filesystem is damaged, and nothing was changed: " + way_to_repair(type->name);
  if (error != EINVAL) return "";
  if (type->outdated != nullptr)
    if (const std::string why = type->outdated(device); !why.empty()) return ": " + why;
  struct utsname system{};
  ::uname(&system);
  const auto beyond = features_beyond(device, type->features, kernel_version(system.release));
  if (!beyond || beyond->empty()) return "";
  return ": this is Linux " + std::string(system.release) + ", and the filesystem has " + *beyond +
         ". Use it on a node with a newer kernel, and copy its files into a new volume to use them here. If it is new, "
         "leave these features out by mkfsOptions or --mkfs-options, then delete and recreate the claim";
}

result<> configure(int context, const FilesystemType* type, const std::string& device,
                   const std::vector<MountOption>& options) {
  if (::fsconfig(context, FSCONFIG_SET_STRING, "source", device.c_str(), 0) != 0)
    return mount_failure("device " + device, context);
  for (const auto& [key, value] : options) {
    const int failed = value ? ::fsconfig(context, FSCONFIG_SET_STRING, key.c_str(), value->c_str(), 0)
                             : ::fsconfig(context, FSCONFIG_SET_FLAG, key.c_str(), nullptr, 0);
    if (failed != 0) return mount_failure("mount option " + key, context);
  }
  if (::fsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0) return {};
  const int error = errno;
  if (type != nullptr)
    if (auto refused = mount_refusal(type->name, device, error)) return *refused;
  Error failed = mount_failure("mounting " + device, context);
  failed.text += reason(type, device, error);
  if (is_damage(error)) failed.code = errc::failed_precondition;
  return failed;
}

Error other_mount(const std::string& target, const Mount& there) {
  return {errc::failed_precondition, target + " has something else mounted: " + there.fstype + " of " + there.source};
}

bool is_of(const Mount& mount, const std::string& device) {
  struct stat found{};
  if (mount.source == device) return true;
  if (::stat(device.c_str(), &found) != 0 || !S_ISBLK(found.st_mode)) return false;
  return mount.dev_major == major(found.st_rdev) && mount.dev_minor == minor(found.st_rdev) && mount.root == "/";
}

result<bool> same_file(int fd, const std::string& target, const std::string& source) {
  struct stat there{}, wanted{};
  if (::fstat(fd, &there) != 0) return failure("looking at " + target, errno);
  if (::stat(source.c_str(), &wanted) != 0) return failure("looking at " + source, errno);
  return there.st_dev == wanted.st_dev && there.st_ino == wanted.st_ino;
}

/// No table shows that an xfs has shut down. Its next user would start only to fail.
result<> check_lives(int tree, const std::string& source) {
  struct stat root{};
  if (::fstat(tree, &root) == 0) return {};
  if (errno != EIO) return failure("looking at " + source, errno);
  return Error{errc::failed_precondition, "the filesystem at " + source +
                                              " has shut down after an error: end all that uses it on this node, so " +
                                              "that it is unstaged; its next stage replays its log"};
}

result<> set_attributes(int mount, const MountFlags& flags, const std::string& source) {
  if (flags.set == 0 && flags.clear == 0) return {};
  mount_attr attributes{};
  attributes.attr_set = flags.set;
  attributes.attr_clr = flags.clear;
  if (::mount_setattr(mount, "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0)
    return failure("setting the flags of the bind of " + source, errno);
  return {};
}

}  // namespace

result<> mount(const std::string& device, const std::string& fstype, const std::string& target,
               const std::string& flags) {
  auto parsed = parse_flags(flags);
  if (!parsed) return parsed.error();
  const auto* type = filesystem_type(fstype);
  const std::string_view needed = type != nullptr && type->mount_option != nullptr ? type->mount_option(device) : "";
  if (!needed.empty()) add_default(*parsed, needed);
  const auto place = make_target(target, false);
  if (!place) return place.error();
  const auto there = mount_at(place->get(), target);
  if (!there) return there.error();
  if (*there) return is_of(**there, device) ? result<>() : other_mount(target, **there);
  if (auto empty = check_empty(place->get(), target); !empty) return empty;

  const Fd context(::fsopen(fstype.c_str(), FSOPEN_CLOEXEC));
  if (!context) return mount_failure("filesystem " + fstype, -1);
  if (auto configured = configure(context.get(), type, device, parsed->filesystem); !configured) return configured;
  const Fd mounted(::fsmount(context.get(), FSMOUNT_CLOEXEC, static_cast<unsigned>(parsed->set)));
  if (!mounted) return mount_failure("mounting " + device, context.get());
  return attach(mounted.get(), place->get(), target);
}

result<> bind(const std::string& source, const std::string& target, bool device_node, const std::string& flags) {
  const auto parsed = parse_flags(flags);
  if (!parsed) return parsed.error();
  const auto place = make_target(target, device_node);
  if (!place) return place.error();
  const auto there = mount_at(place->get(), target);
  if (!there) return there.error();
  if (*there) {
    const auto same = same_file(place->get(), target, source);
    if (!same) return same.error();
    return *same ? result<>() : other_mount(target, **there);
  }
  if (auto empty = check_empty(place->get(), target); !empty) return empty;
  const Fd tree(::open_tree(AT_FDCWD, source.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW));
  if (!tree) return failure("binding " + source, errno);
  if (auto lives = check_lives(tree.get(), source); !lives) return lives;
  // Options of the filesystem belong to its mount, not to a bind of it. mount(8) drops them as well.
  if (auto set = set_attributes(tree.get(), *parsed, source); !set) return set;
  return attach(tree.get(), place->get(), target);
}

}  // namespace corbd::host::ops
