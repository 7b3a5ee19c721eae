#include "locks.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"

namespace corbd::manager {
namespace {

constexpr std::chrono::milliseconds kAskAgain{50};

/// Returns nothing while another process has the lock.
result<std::optional<FileLock>> try_lock(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return Error{errc::state_write, "opening the lock file " + path + ": " + std::strerror(errno)};
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK || errno == EINTR) return std::optional<FileLock>();
    return Error{errc::unavailable, "locking " + path + ": " + std::strerror(errno)};
  }
  // The last holder may have removed the file meanwhile.
  if (!still_names(path, fd.get())) return std::optional<FileLock>();
  const std::string pid = std::to_string(::getpid()) + "\n";
  // The pid is for people only, so a full disk does no harm.
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) errno = 0;
  return std::optional(FileLock(std::move(fd), path));
}

}  // namespace

FileLock::~FileLock() {
  if (fd_) ::unlink(path_.c_str());
}

task<result<FileLock>> lock_file(executor control, Clock& clock, std::string folder, std::string name, std::string what,
                                 Until until) {
  if (auto made = make_folder(folder, 0700); !made) co_return made.error();
  const std::string path = folder + "/" + sha256_hex(name) + ".lock";
  for (;;) {
    auto taken = try_lock(path);
    if (!taken) co_return taken.error();
    if (*taken) co_return std::move(**taken);
    const bool cancelled = until.scope != nullptr && until.scope->cancelled();
    if (cancelled || clock.now() >= until.deadline) {
      const auto pid = read_file(path, 64);
      const std::string holder = pid ? std::string(trimmed(*pid)) : std::string("unknown");
      const Error waited = wait_error(cancelled ? Waited::cancelled : Waited::deadline, "the lock of " + what);
      co_return Error{waited.code, waited.text + ": process " + holder + " works on it"};
    }
    co_await sleep_until(control, clock, std::min(clock.now() + kAskAgain, until.deadline), until.scope);
  }
}

}  // namespace corbd::manager
