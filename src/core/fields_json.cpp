#include "corbd/core/fields_json.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "corbd/core/text.hpp"

namespace corbd::fields {

std::string Place::text() const {
  if (above == nullptr) return std::string(key);
  return above->text() + (key.empty() ? "[" + std::to_string(index) + "]" : "." + printable(key));
}

Error detail::mistake(const Place& place, std::string_view what, const Manner& manner) {
  return {manner.code, place.text() + ": " + std::string(what)};
}

const json::value* find(const json::object& object, std::string_view key, bool go) {
  if (!go) return object.if_contains(key);
  const json::value* found = nullptr;
  for (const auto& entry : object)
    if (!entry.value().is_null() && same_in_any_case(entry.key(), key)) found = &entry.value();
  return found;
}

result<json::object> parse(std::string_view text, std::string_view name, const Manner& manner) {
  boost::system::error_code failed;
  auto value = json::parse(text, failed);
  if (failed || !value.is_object()) return detail::mistake({nullptr, name}, "not a JSON object", manner);
  return std::move(value.get_object());
}

std::string to_file(int version, json::object fields) {
  json::object file{{"version", version}};
  for (auto& field : fields) file.emplace(field.key(), std::move(field.value()));
  return json::serialize(file) + "\n";
}

result<json::object> parse_file(std::string_view text, std::string_view name, int newest) {
  auto file = parse(text, name);
  if (!file) return file.error();
  struct Head {
    std::int64_t version = 0;
  } head;
  const Place place{nullptr, name};
  if (auto read = detail::Reader{Manner()}.object(*file, head, std::tuple{added("version", &Head::version)}, place);
      !read)
    return read.error();
  if (head.version <= newest) return file;
  return Error{errc::state_newer, place.text() + " version " + std::to_string(head.version) + ", this agent reads " +
                                      std::to_string(newest)};
}

}  // namespace corbd::fields
