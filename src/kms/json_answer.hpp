// Parses JSON that a stranger may have written. It is read into lists, which have no hash table: names that collide in
// one cost nothing.
#pragma once

#include <boost/json/string_view.hpp>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/secret.hpp"

namespace corbd::kms {

/// Views a secret for a request's JSON, which is wiped as a whole. A std::string on the way there would stay.
inline boost::json::string_view json_view(const Secret& secret) {
  return {secret.reveal().data(), secret.reveal().size()};
}

/// A value and the values below it. Its texts are wiped when it is destroyed, because an answer may contain a key.
class JsonAnswer {
 public:
  /// Returns null for text that is not JSON, is deeper than kDepth, or has more than kValues.
  static JsonAnswer parse(std::string_view text);
  static constexpr std::size_t kDepth = 16, kValues = 32 << 10;

  JsonAnswer() = default;
  ~JsonAnswer();
  JsonAnswer(const JsonAnswer&) = delete;
  JsonAnswer& operator=(const JsonAnswer&) = delete;
  JsonAnswer(JsonAnswer&& other) noexcept = default;
  JsonAnswer& operator=(JsonAnswer&& other) noexcept = default;

  enum class Is { null, boolean, number, text, list, object };
  Is is = Is::null;
  std::string name;                    ///< name of an object's member
  std::string text;                    ///< value of a text
  std::optional<std::uint64_t> count;  ///< value of a number without sign and fraction
  std::vector<JsonAnswer> inside;      ///< values of a list or object, in their order

  /// Returns an object's last member of that name, as Go reads it. Null: there is none.
  const JsonAnswer* find(std::string_view member) const;
  /// Does the same along a path.
  const JsonAnswer* at(std::initializer_list<std::string_view> path) const;
  const JsonAnswer* object_at(std::initializer_list<std::string_view> path) const;
};

}  // namespace corbd::kms
