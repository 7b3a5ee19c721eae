// A string that no stream, formatter or JSON writer accepts, and that is wiped when it goes.
#pragma once

#include <string.h>

#include <string>
#include <string_view>
#include <utility>

namespace corbd {

class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string value) : value_(std::move(value)) {}
  Secret(const Secret&) = default;
  Secret(Secret&&) = default;
  Secret& operator=(const Secret&) = default;
  Secret& operator=(Secret&&) = default;
  ~Secret() { explicit_bzero(value_.data(), value_.size()); }

  bool empty() const { return value_.empty(); }
  /// The only way to the text; for handing it to a library or a 0600 file.
  std::string_view reveal() const { return value_; }
  friend bool operator==(const Secret&, const Secret&) = default;

 private:
  std::string value_;
};

}  // namespace corbd
