#include "wire.hpp"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_stack.hpp>
#include <utility>

#include "fields.hpp"

namespace corbd::kube {
namespace {

namespace json = boost::json;

/// Limits the sum of the squares of the numbers of names, over all objects of a text: about 30 ms if all names collide.
/// One object may use all of it: a user who labels a Node must not stop each agent's list of Nodes.
constexpr std::size_t kMostNames = 8000, kMostWork = kMostNames * kMostNames;

/// Builds the object. Boost.JSON's parser calls this for each part of the text, and enforces the limits below.
class Builder {
 public:
  static constexpr std::size_t max_object_size = kMostNames, max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1), max_string_size = std::size_t(-1);
  using Error = boost::system::error_code;

  Builder() { values_.reset(); }
  json::value take() { return values_.release(); }

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_object_begin(Error&) { return true; }
  bool on_object_end(std::size_t members, Error& failed) {
    work_ += members * members;
    if (work_ > kMostWork)
      failed = json::error::object_too_large;
    else
      values_.push_object(members);
    return !failed;
  }
  bool on_array_begin(Error&) { return true; }
  bool on_array_end(std::size_t values, Error&) { return values_.push_array(values), true; }
  bool on_key_part(json::string_view part, std::size_t, Error&) { return values_.push_chars(part), true; }
  bool on_key(json::string_view part, std::size_t, Error&) { return values_.push_key(part), true; }
  bool on_string_part(json::string_view part, std::size_t, Error&) { return values_.push_chars(part), true; }
  bool on_string(json::string_view part, std::size_t, Error&) { return values_.push_string(part), true; }
  bool on_number_part(json::string_view, Error&) { return true; }
  bool on_int64(std::int64_t value, json::string_view, Error&) { return values_.push_int64(value), true; }
  bool on_uint64(std::uint64_t value, json::string_view, Error&) { return values_.push_uint64(value), true; }
  bool on_double(double value, json::string_view, Error&) { return values_.push_double(value), true; }
  bool on_bool(bool value, Error&) { return values_.push_bool(value), true; }
  bool on_null(Error&) { return values_.push_null(), true; }
  bool on_comment_part(json::string_view, Error&) { return true; }
  bool on_comment(json::string_view, Error&) { return true; }

 private:
  json::value_stack values_;
  std::size_t work_ = 0;
};

}  // namespace

result<json::object> parse_object(std::string_view text, std::string_view target) {
  json::basic_parser<Builder> parser{json::parse_options()};
  boost::system::error_code failed;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), failed);
  if (!failed && read != text.size()) failed = json::error::extra_data;
  const std::string answered = "the API server answered " + std::string(target) + " with ";
  if (failed == json::error::object_too_large)
    return Error{errc::exhausted, answered + "too many names: the squares of the numbers of names in its objects " +
                                      "exceed 64 million. Remove labels, annotations or keys that nobody needs"};
  auto value = failed || !parser.done() ? json::value() : parser.handler().take();
  if (!value.is_object())
    return Error{errc::io, answered + "something that is not a JSON object" + (failed ? ": " + failed.message() : "")};
  return std::move(value.get_object());
}

result<> Lines::feed(std::string_view piece, const std::function<bool(std::string_view)>& line) {
  while (!piece.empty()) {
    const auto end = piece.find('\n');
    const auto part = piece.substr(0, end);
    if (kept_.size() + part.size() > limit_)
      return Error{errc::exhausted, "the API server sent an object of more than " + std::to_string(limit_) + " bytes"};
    if (end == piece.npos) {
      kept_.append(part);
      return {};
    }
    piece.remove_prefix(end + 1);
    const std::string whole = std::exchange(kept_, {}).append(part);
    if (!whole.empty() && !line(whole)) return {};
  }
  return {};
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
    return {};  // an event of a later API
  change.object = std::move(object->get_object());
  return {std::move(change), std::nullopt};
}

}  // namespace corbd::kube
