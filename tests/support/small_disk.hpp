// A disk of a few KiB, in a mount namespace of the test's own, which is gone with its process.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "corbd/core/fd.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

namespace corbd::test {

class SmallDisk {
 public:
  /// Returns nothing, and prints a message, if the test may not mount.
  static std::optional<SmallDisk> mount(unsigned kib) {
    static const bool allowed =
        ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    SmallDisk disk;
    const std::string size = "size=" + std::to_string(kib) + "k";
    if (allowed && ::mount("tmpfs", disk.path().c_str(), "tmpfs", 0, size.c_str()) == 0) return disk;
    WARN("skipped: no permission to mount");
    return std::nullopt;
  }
  ~SmallDisk() {
    if (folder_) ::umount2(path().c_str(), MNT_DETACH);
  }
  SmallDisk(SmallDisk&&) = default;

  const std::string& path() const { return folder_->path(); }
  /// Fills it until it takes no more byte.
  void fill() const {
    const Fd file(::open((path() + "/filling").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    const std::string block(512, 'x');
    while (::write(file.get(), block.data(), block.size()) > 0) {
    }
  }
  void read_only(bool on) const {
    ::mount("none", path().c_str(), nullptr, MS_REMOUNT | (on ? MS_RDONLY : 0), nullptr);
  }

 private:
  SmallDisk() : folder_(std::make_unique<Folder>()) {}
  std::unique_ptr<Folder> folder_;
};

}  // namespace corbd::test
