// Locks between processes, and between the operations of one: one file each. The kernel frees a lock with its holder.
#pragma once

#include <string>

#include "corbd/core/fd.hpp"
#include "corbd/core/wait.hpp"

namespace corbd::manager {

class FileLock {
 public:
  FileLock() = default;
  FileLock(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) = delete;
  /// Removes the file, too.
  ~FileLock();

 private:
  Fd fd_;
  std::string path_;
};

/// Waits for `folder`/<hash of name>.lock. The error names `what` and the process that has the lock.
task<result<FileLock>> lock_file(executor control, Clock& clock, std::string folder, std::string name, std::string what,
                                 Until until);

}  // namespace corbd::manager
