// Ground for tests that mount: a mount namespace of the test's own, which goes with its process, and loop devices that
// detach themselves.
#pragma once

#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "corbd/core/fd.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

namespace corbd::test {

/// False, with a message, where the test may not mount.
inline bool may_mount() {
  static const bool allowed =
      ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  if (!allowed) WARN("skipped: no permission to mount");
  return allowed;
}

/// What is mounted below the folder, as the calling thread sees it.
inline std::vector<std::string> mount_targets_below(const std::string& folder) {
  std::ifstream table("/proc/thread-self/mountinfo");
  std::vector<std::string> found;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string id, parent, number, root, target;
    words >> id >> parent >> number >> root >> target;
    if (target.starts_with(folder)) found.push_back(target);
  }
  return found;
}

inline std::string make_image(const std::string& path, off_t size = 64 * 1024 * 1024) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd || ::ftruncate(fd.get(), size) != 0) throw std::runtime_error("no image at " + path);
  return path;
}

inline void overwrite(const std::string& path, off_t at, const std::string& bytes) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::pwrite(fd.get(), bytes.data(), bytes.size(), at) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("writing to " + path);
}

// Puts a script of that name in front of the real tool while it lives.
class FakeTool {
 public:
  FakeTool(const std::string& name, const std::string& script) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    ::chmod(path.c_str(), 0755);
    ::setenv("PATH", (folder_.path() + ":" + before_).c_str(), 1);
  }
  ~FakeTool() { ::setenv("PATH", before_.c_str(), 1); }

 private:
  Folder folder_;
  std::string before_ = std::getenv("PATH");
};

/// A filesystem that never answers, as one has it whose server is gone. Whoever waits for it is freed at its end.
class DeadMount {
 public:
  explicit DeadMount(std::string path) : path_(std::move(path)), server_(::open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
    const std::string options =
        "fd=" + std::to_string(server_.get()) + ",rootmode=40000,user_id=0,group_id=0,allow_other";
    mounted_ = server_ && ::mount("server:/gone", path_.c_str(), "fuse", 0, options.c_str()) == 0;
    if (!mounted_) WARN("skipped: no FUSE");
  }
  ~DeadMount() {
    server_.reset();
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  DeadMount(const DeadMount&) = delete;
  DeadMount& operator=(const DeadMount&) = delete;
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  Fd server_;
  bool mounted_ = false;
};

class LoopDevice {
 public:
  static std::optional<LoopDevice> attach(const std::string& image, bool read_only = false) {
    const Fd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    const Fd file(::open(image.c_str(), O_RDWR | O_CLOEXEC));
    for (int attempt = 0; control && attempt < 20; ++attempt) {
      const int index = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
      if (index < 0) break;
      LoopDevice device;
      device.path_ = "/dev/loop" + std::to_string(index);
      device.fd_ = Fd(::open(device.path_.c_str(), O_RDWR | O_CLOEXEC));
      loop_config config{};
      config.fd = static_cast<unsigned>(file.get());
      config.info.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0);
      if (device.fd_ && ::ioctl(device.fd_.get(), LOOP_CONFIGURE, &config) == 0) return device;
    }
    WARN("skipped: no loop device");
    return std::nullopt;
  }
  const std::string& path() const { return path_; }
  /// After its file got another size.
  void follow() const { REQUIRE(::ioctl(fd_.get(), LOOP_SET_CAPACITY) == 0); }

 private:
  std::string path_;
  Fd fd_;
};

}  // namespace corbd::test
