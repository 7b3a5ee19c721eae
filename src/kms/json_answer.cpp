#include "json_answer.hpp"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>

#include "corbd/core/append_wiping.hpp"

namespace corbd::kms {
namespace {

namespace json = boost::json;

/// Builds the answer. Boost.JSON's parser calls it for each part of the text.
class Builder {
 public:
  static constexpr std::size_t max_object_size = std::size_t(-1), max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1), max_string_size = std::size_t(-1);
  using Error = boost::system::error_code;

  Builder() { open_.push_back(&root_); }
  ~Builder() {
    wipe(name_);
    wipe(text_);
  }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  JsonAnswer take() { return root_.inside.empty() ? JsonAnswer() : std::move(root_.inside.front()); }

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_object_begin(Error& failed) { return begin(JsonAnswer::Is::object, failed); }
  bool on_object_end(std::size_t, Error&) { return end(); }
  bool on_array_begin(Error& failed) { return begin(JsonAnswer::Is::list, failed); }
  bool on_array_end(std::size_t, Error&) { return end(); }
  bool on_key_part(json::string_view part, std::size_t, Error&) { return append(name_, part); }
  bool on_key(json::string_view part, std::size_t, Error&) { return append(name_, part); }
  bool on_string_part(json::string_view part, std::size_t, Error&) { return append(text_, part); }
  bool on_string(json::string_view part, std::size_t, Error& failed) {
    append(text_, part);
    auto* const made = add(JsonAnswer::Is::text, failed);
    if (made != nullptr) made->text = text_;
    wipe(text_);
    return made != nullptr;
  }
  bool on_number_part(json::string_view, Error&) { return true; }
  bool on_int64(std::int64_t value, json::string_view, Error& failed) {
    auto* const made = add(JsonAnswer::Is::number, failed);
    if (made != nullptr && value >= 0) made->count = static_cast<std::uint64_t>(value);
    return made != nullptr;
  }
  bool on_uint64(std::uint64_t value, json::string_view, Error& failed) {
    auto* const made = add(JsonAnswer::Is::number, failed);
    if (made != nullptr) made->count = value;
    return made != nullptr;
  }
  bool on_double(double, json::string_view, Error& failed) { return add(JsonAnswer::Is::number, failed) != nullptr; }
  bool on_bool(bool, Error& failed) { return add(JsonAnswer::Is::boolean, failed) != nullptr; }
  bool on_null(Error& failed) { return add(JsonAnswer::Is::null, failed) != nullptr; }
  bool on_comment_part(json::string_view, Error&) { return true; }
  bool on_comment(json::string_view, Error&) { return true; }

 private:
  /// A text with an escape comes in several parts.
  static bool append(std::string& into, json::string_view part) {
    append_wiping(into, {part.data(), part.size()});
    return true;
  }
  /// Returns null if there are too many values.
  JsonAnswer* add(JsonAnswer::Is kind, Error& failed) {
    if (++values_ > JsonAnswer::kValues) {
      failed = json::error::array_too_large;
      return nullptr;
    }
    auto& made = open_.back()->inside.emplace_back();
    made.is = kind;
    made.name = std::exchange(name_, std::string());
    return &made;
  }
  /// Nothing is added to the list above while this one is open, so its place stays.
  bool begin(JsonAnswer::Is kind, Error& failed) {
    auto* const made = add(kind, failed);
    if (made != nullptr) open_.push_back(made);
    return made != nullptr;
  }
  bool end() {
    open_.pop_back();
    return true;
  }

  JsonAnswer root_;
  std::vector<JsonAnswer*> open_;
  std::size_t values_ = 0;
  std::string name_, text_;
};

}  // namespace

JsonAnswer JsonAnswer::parse(std::string_view text) {
  json::parse_options options;
  options.max_depth = kDepth;
  json::basic_parser<Builder> parser(options);
  boost::system::error_code failed;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), failed);
  if (failed || !parser.done() || read != text.size()) return {};
  return parser.handler().take();
}

JsonAnswer::~JsonAnswer() { wipe(text); }

const JsonAnswer* JsonAnswer::find(std::string_view member) const {
  if (is != Is::object) return nullptr;
  const auto found = std::find_if(inside.rbegin(), inside.rend(), [&](const auto& one) { return one.name == member; });
  return found == inside.rend() ? nullptr : &*found;
}

const JsonAnswer* JsonAnswer::at(std::initializer_list<std::string_view> path) const {
  const JsonAnswer* here = this;
  for (const auto member : path)
    if (here != nullptr) here = here->find(member);
  return here;
}

const JsonAnswer* JsonAnswer::object_at(std::initializer_list<std::string_view> path) const {
  const auto* found = at(path);
  return found != nullptr && found->is == Is::object ? found : nullptr;
}

}  // namespace corbd::kms
