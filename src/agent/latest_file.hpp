// A file that threads write, and that ends with what was set last.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "corbd/core/file.hpp"

namespace corbd::agent {

class LatestFile {
 public:
  /// Readable by the agent's own user alone.
  explicit LatestFile(std::string path) : path_(std::move(path)) {}

  /// Any thread. Waits for no disk.
  void set(std::string text) {
    const std::lock_guard lock(setting_);
    text_ = std::move(text);
  }
  /// Any thread, after set(). Writers take turns, and each writes what is set when its turn comes. So their order does
  /// not matter.
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
