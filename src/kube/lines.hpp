// A watch's body as its lines, however it was cut into pieces. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::kube {

class Lines {
 public:
  /// limit: bytes of a line, which is one object.
  explicit Lines(std::size_t limit) : limit_(limit) {}
  /// Calls line for each that is whole now; empty ones are left out. exhausted: one is too long. Stops at the first
  /// false of line.
  result<> feed(std::string_view piece, const std::function<bool(std::string_view)>& line);
  bool empty() const { return kept_.empty(); }

 private:
  const std::size_t limit_;
  std::string kept_;
};

}  // namespace corbd::kube
