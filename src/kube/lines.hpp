// Splits a watch's body into lines, whatever its pieces are. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::kube {

class Lines {
 public:
  /// `limit` is in bytes of one line, which is one object.
  explicit Lines(std::size_t limit) : limit_(limit) {}
  /// Calls `line` for each complete line, without empty ones. exhausted: a line is too long. Stops when `line` returns
  /// false.
  result<> feed(std::string_view piece, const std::function<bool(std::string_view)>& line);
  bool empty() const { return kept_.empty(); }

 private:
  const std::size_t limit_;
  std::string kept_;
};

}  // namespace corbd::kube
