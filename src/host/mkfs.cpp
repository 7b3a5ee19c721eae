// ops::mkfs and ops::fsck, with the arguments that ceph-csi gives the same tools.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "corbd/core/fd.hpp"
#include "corbd/core/log.hpp"
#include "ops.hpp"
#include "run.hpp"

namespace corbd::host::ops {
namespace {

using Arguments = std::vector<std::string>;

// An old mke2fs says "Bad option(s) specified". A helper tries it once, on a file in memory that the child inherits by
// number.
bool mke2fs_knows_prezeroed() {
  static const bool known = [] {
    const Fd file(::memfd_create("mke2fs", 0));
    constexpr off_t size = 4 * 1024 * 1024;
    if (!file || ::ftruncate(file.get(), size) != 0) return false;
    const std::string path = "/proc/self/fd/" + std::to_string(file.get());
    const auto tried = run({"mkfs.ext4", "-n", "-Eassume_storage_prezeroed=1", path}, Capture::errors);
    return tried && tried->code == 0 && tried->output.find("Bad option(s) specified") == std::string::npos;
  }();
  return known;
}

// Without arguments mkfs.xfs prints its usage and fails.
bool mkfs_xfs_knows_reflink() {
  static const bool known = [] {
    const auto usage = run({"mkfs.xfs"}, Capture::everything);
    return usage && usage->output.find("reflink=0|1") != std::string::npos;
  }();
  return known;
}

// The image was just proven empty. So nothing is discarded, and a new mke2fs does not zero what reads as zero. The
// unwritten part of a LUKS mapping does not read as zero, nor does what an interrupted format left. There ext4 zeroes
// its inode tables later, when it is mounted.
Arguments default_options(const std::string& fstype, bool zeroes) {
  if (fstype == "ext4" && zeroes && mke2fs_knows_prezeroed()) return {"-m0", "-Enodiscard,assume_storage_prezeroed=1"};
  if (fstype == "ext4") return {"-m0", "-Enodiscard,lazy_itable_init=1,lazy_journal_init=1"};
  if (fstype == "ext3" || fstype == "ext2") return {"-m0"};
  if (fstype == "xfs" && mkfs_xfs_knows_reflink()) return {"-K", "-m", "reflink=0"};
  if (fstype == "xfs") return {"-K"};
  return {};
}

// Split at single spaces, as ceph-csi does: two in a row make an empty argument.
Arguments arguments_of(const std::string& options) {
  Arguments parts(1);
  for (const char c : options) {
    if (c == ' ')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// It becomes part of a program's name.
bool is_plain_word(const std::string& fstype) {
  return !fstype.empty() &&
         std::all_of(fstype.begin(), fstype.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
}

std::string describe(const Probe& found) {
  switch (found.kind) {
    case Probe::Kind::nothing:
      return "nothing";
    case Probe::Kind::filesystem:
      return "a filesystem, " + found.type;
    case Probe::Kind::partitions:
      return "a partition table, " + found.type;
    case Probe::Kind::other:
      return found.type;
    case Probe::Kind::ambivalent:
      return "more than one signature";
  }
  return "something";
}

}  // namespace

result<> mkfs(const std::string& device, const std::string& fstype, const std::string& options, bool zeroes) {
  if (!is_plain_word(fstype)) return Error{errc::invalid_argument, "filesystem type \"" + fstype + "\" is not a word"};
  const auto found = probe(device);
  if (!found) return found.error();
  if (found->kind != Probe::Kind::nothing)
    return Error{errc::not_empty, "refusing to format " + device + ": it already holds " + describe(*found)};
  Arguments argv{"mkfs." + fstype};
  for (auto& argument : options.empty() ? default_options(fstype, zeroes) : arguments_of(options))
    argv.push_back(std::move(argument));
  argv.push_back(device);
  const auto ended = run(argv, Capture::errors);
  if (!ended && ended.error().code == errc::not_found) return Error{errc::failed_precondition, ended.error().text};
  if (!ended) return ended.error();
  if (ended->code == 0) return {};
  const errc code = ended->signal != 0 ? errc::unavailable : errc::failed_precondition;
  return Error{code, argv.front() + " " + device + ": " + host::describe(*ended)};
}

// fsck(8): 1 errors corrected, 4 errors left. As in ceph-csi's mount library, the mount finds out about any other exit
// code. We run the checker itself: fsck(8) in front of it would be one process more.
result<> fsck(const std::string& device, const std::string& fstype) {
  constexpr int corrected = 1, left_uncorrected = 4;
  const std::string tool = "fsck." + fstype;
  const auto ended = run({tool, "-a", device}, Capture::everything);
  if (!ended && ended.error().code == errc::not_found) {
    log::warning("fsck.missing", {{"device", device}, {"tool", tool}});
    return {};
  }
  if (!ended) return ended.error();
  if (ended->signal != 0) return Error{errc::unavailable, tool + " -a " + device + ": " + host::describe(*ended)};
  if ((ended->code & left_uncorrected) != 0)
    return Error{errc::failed_precondition,
                 tool + " -a found errors on " + device +
                     " that it could not correct: repair it by hand: " + host::describe(*ended)};
  if (ended->code != 0)
    log::write(ended->code == corrected ? log::Level::info : log::Level::warning, "fsck.ended",
               {{"device", device}, {"code", ended->code}, {"output", ended->output}});
  return {};
}

}  // namespace corbd::host::ops
