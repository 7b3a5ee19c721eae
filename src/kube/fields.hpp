// Reads fields of an object by their path. A field that is absent, or of the wrong type, is empty.
#pragma once

#include <boost/json/object.hpp>
#include <string>

namespace corbd::kube {

/// Returns the value at the end of the path. Nothing if a part is absent, or is no object.
template <class... Rest>
const boost::json::value* at(const boost::json::object& object, const char* key, Rest... rest) {
  const auto* value = object.if_contains(key);
  if constexpr (sizeof...(rest) == 0) {
    return value;
  } else {
    return value != nullptr && value->is_object() ? at(value->get_object(), rest...) : nullptr;
  }
}

template <class... Path>
std::string text(const boost::json::object& object, Path... path) {
  const auto* value = at(object, path...);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

}  // namespace corbd::kube
