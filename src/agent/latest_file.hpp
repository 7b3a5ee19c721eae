// A file that several threads write, and that ends with the value that was set last.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "corbd/core/file.hpp"

namespace corbd::agent {

class LatestFile {
 public:
  /// Only the agent's own user can read the file.
  explicit LatestFile(std::string path) : path_(std::move(path)) {}

  /// Callable from any thread. Waits for no disk.
  void set(std::string text) {
    const std::lock_guard lock(setting_);
    text_ = std::move(text);
  }
  /// Callable from any thread, after set(). Writers take turns, and each writes the value that is set when its turn
  /// comes, so their order does not matter.
  result<> write() {
    const std::lock_guard turn(writing_);
    return write_durably(path_, latest(), 0600);
  }

 private:
  std::string latest() {
    const std::lock_guard lock(setting_);
    return text_;
  }

  const std::string path_;
  std::mutex writing_, setting_;
  std::string text_;
};

}  // namespace corbd::agent
