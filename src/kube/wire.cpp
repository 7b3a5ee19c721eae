#include "wire.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "fields.hpp"

namespace corbd::kube {

namespace json = boost::json;

result<json::object> parse_object(std::string_view text, std::string_view target) {
  boost::system::error_code failed;
  auto value = json::parse(json::string_view(text.data(), text.size()), failed);
  if (failed || !value.is_object())
    return Error{errc::io, "the API server answered " + std::string(target) +
                               " with something that is not a JSON object" + (failed ? ": " + failed.message() : "")};
  return std::move(value.get_object());
}

Line read_line(std::string_view line, const Verb& verb, std::string_view target) {
  auto parsed = parse_object(line, target);
  if (!parsed) return {std::nullopt, api_error(parsed.error())};
  auto* object = parsed->if_contains("object");
  if (object == nullptr || !object->is_object())
    return {std::nullopt, api_error({errc::io, "the API server sent an event without an object"})};
  const std::string type = text(*parsed, "type");
  if (type == "ERROR") {
    const auto* code = object->get_object().if_contains("code");
    const unsigned status = code != nullptr && code->is_int64() ? static_cast<unsigned>(code->get_int64()) : 500;
    return {std::nullopt, api_error(status, json::serialize(*object), std::nullopt, verb, target)};
  }
  Change change{Change::Kind::bookmark, {}, text(object->get_object(), "metadata", "resourceVersion"), false};
  change.ends_initial = type == "BOOKMARK" &&
                        text(object->get_object(), "metadata", "annotations", "k8s.io/initial-events-end") == "true";
  if (type == "BOOKMARK") return {std::move(change), std::nullopt};
  if (type == "ADDED")
    change.kind = Change::Kind::added;
  else if (type == "MODIFIED")
    change.kind = Change::Kind::modified;
  else if (type == "DELETED")
    change.kind = Change::Kind::deleted;
  else
    return {};  // of a later API
  change.object = std::move(object->get_object());
  return {std::move(change), std::nullopt};
}

}  // namespace corbd::kube
