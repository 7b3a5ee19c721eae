// Parses the bytes of an answer. Pure.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/kube/api.hpp"

namespace corbd::kube {

/// io: it is not JSON, or nests deeper than any object of the API. exhausted: reading its names may take too long. A
/// tenant may write names that collide in Boost.JSON's hash tables, into a Secret, a ConfigMap or an Event; the work
/// for an object of those grows with the square of their number.
result<boost::json::object> parse_object(std::string_view text, std::string_view target);

/// A line of a watch: a change, the failure in an ERROR line, or neither for a type of a later API.
struct Line {
  std::optional<Change> change;
  std::optional<ApiError> failure;
};
Line read_line(std::string_view line, const Verb& verb, std::string_view target);

}  // namespace corbd::kube
