// What the bytes of an answer say. Pure.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/kube/api.hpp"

namespace corbd::kube {

/// io: it is none, or nests deeper than any object of the API.
result<boost::json::object> parse_object(std::string_view text, std::string_view target);

/// One line of a watch: a change, the failure that an ERROR line tells, or neither, of a later API's type.
struct Line {
  std::optional<Change> change;
  std::optional<Failure> failure;
};
Line read_line(std::string_view line, const Verb& verb, std::string_view target);

}  // namespace corbd::kube
