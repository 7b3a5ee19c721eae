#include "go_json.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>

#include "corbd/core/fields_json.hpp"

namespace corbd::rbd {

namespace json = boost::json;

result<std::optional<json::array>> GoJson::list(std::string_view text) const {
  if (text.find_first_not_of(" \t\r\n") == text.npos) return std::optional<json::array>();
  boost::system::error_code failed;
  auto parsed = json::parse(text, failed);
  if (failed) return wrong("not JSON: " + failed.message() + ": correct it in the ConfigMap");
  if (!parsed.is_array()) return wrong("not an array of objects: correct it in the ConfigMap");
  const auto& all = parsed.get_array();
  if (!std::all_of(all.begin(), all.end(), [](const auto& value) { return value.is_object(); }))
    return wrong("an entry is not an object: correct it in the ConfigMap");
  return std::optional(std::move(parsed.get_array()));
}

const json::value* GoJson::find(const json::object& object, std::string_view key) {
  return fields::find(object, key, true);
}

result<const json::object*> GoJson::object_at(const json::object& object, std::string_view key) const {
  const auto* value = find(object, key);
  if (value != nullptr && !value->is_object()) return no("an object", key);
  return value == nullptr ? nullptr : &value->get_object();
}

result<const json::array*> GoJson::array_at(const json::object& object, std::string_view key) const {
  const auto* value = find(object, key);
  if (value != nullptr && !value->is_array()) return no("an array", key);
  return value == nullptr ? nullptr : &value->get_array();
}

result<std::string> GoJson::text_at(const json::object& object, std::string_view key) const {
  const auto* value = find(object, key);
  if (value != nullptr && !value->is_string()) return no("a string", key);
  return value == nullptr ? std::string() : std::string(value->get_string());
}

}  // namespace corbd::rbd
