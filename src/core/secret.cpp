#include "corbd/core/secret.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

namespace corbd {

namespace json = boost::json;

void wipe(json::value& value) {
  if (auto* text = value.if_string()) wipe(std::span<char>(text->data(), text->size()));
  if (auto* array = value.if_array())
    for (auto& one : *array) wipe(one);
  if (auto* object = value.if_object())
    for (auto& member : *object) wipe(member.value());
}

void wipe(json::object& object) {
  for (auto& member : object) wipe(member.value());
  object.clear();
}

}  // namespace corbd
