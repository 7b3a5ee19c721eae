// A string that no stream, formatter or JSON writer accepts, and that is wiped when it is destroyed, moved from, or
// assigned. Libraries keep copies that we cannot reach (librados the key, gRPC the bytes as they came). Therefore core
// dumps are forbidden (core/process.hpp).
#pragma once

#include <string.h>

#include <boost/json/fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace corbd {

/// Overwrites them with zeroes. An empty span may point nowhere, which explicit_bzero() forbids.
inline void wipe(std::span<char> bytes) {
  if (!bytes.empty()) explicit_bzero(bytes.data(), bytes.size());
}
/// Overwrites the whole buffer, also what it held before it became shorter, and leaves it empty.
inline void wipe(std::string& text) {
  text.resize(text.capacity());
  wipe(std::span<char>(text));
  text.clear();
}
/// Overwrites every string below it with zeroes.
void wipe(boost::json::value& value);
/// Overwrites every string below it with zeroes, and leaves it empty.
void wipe(boost::json::object& object);

class Secret {
 public:
  Secret() = default;
  explicit Secret(const std::string& value) : value_(value) {}
  /// Wipes the source, because a short text stays in a string that was moved from.
  explicit Secret(std::string&& value) : value_(std::move(value)) { wipe(value); }
  Secret(const Secret&) = default;
  Secret(Secret&& other) noexcept : value_(std::move(other.value_)) { wipe(other.value_); }
  Secret& operator=(const Secret& other) {
    if (this != &other) *this = Secret(other);
    return *this;
  }
  Secret& operator=(Secret&& other) noexcept {
    if (this == &other) return *this;
    wipe(value_);
    value_ = std::move(other.value_);
    wipe(other.value_);
    return *this;
  }
  ~Secret() { wipe(value_); }

  bool empty() const { return value_.empty(); }
  /// The only access to the text, for a library call or a 0600 file.
  std::string_view reveal() const { return value_; }
  friend bool operator==(const Secret&, const Secret&) = default;

 private:
  std::string value_;
};

}  // namespace corbd
