// Parses the bytes of an answer. Pure.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/kube/api.hpp"

namespace corbd::kube {

/// io: it is not JSON, or nests deeper than any object of the API. exhausted: reading its names may take too long. A
/// tenant may write names that collide in Boost.JSON's hash tables, into a Secret, a ConfigMap or an Event; the work
/// for an object of those grows with the square of their number.
result<boost::json::object> parse_object(std::string_view text, std::string_view target);

/// Splits a watch's body into lines, whatever its pieces are.
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

/// A line of a watch: a change, the failure in an ERROR line, or neither for a type of a later API.
struct Line {
  std::optional<Change> change;
  std::optional<ApiError> failure;
};
Line read_line(std::string_view line, const Verb& verb, std::string_view target);

}  // namespace corbd::kube
