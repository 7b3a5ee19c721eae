// Reads JSON as ceph-csi's Go does: keys match in any case, the last one counts, null counts as absent. Errors are
// invalid_argument. They name the file and the key, and say what is expected.
#pragma once

#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::rbd {

class GoJson {
 public:
  /// `where` is the name for error texts, "config.json".
  explicit constexpr GoJson(std::string_view where) : where_(where) {}

  /// Returns nothing for a text that is empty or only white space.
  result<std::optional<boost::json::array>> list(std::string_view text) const;
  static const boost::json::value* find(const boost::json::object& object, std::string_view key);
  /// Returns null if the key is absent.
  result<const boost::json::object*> object_at(const boost::json::object& object, std::string_view key) const;
  result<const boost::json::array*> array_at(const boost::json::object& object, std::string_view key) const;
  /// Returns "" if the key is absent.
  result<std::string> text_at(const boost::json::object& object, std::string_view key) const;
  Error wrong(std::string_view text) const {
    return {errc::invalid_argument, std::string(where_) + ": " + std::string(text)};
  }

 private:
  Error no(std::string_view kind, std::string_view key) const {
    return wrong("\"" + std::string(key) + "\" is not " + std::string(kind) + ": correct it in the ConfigMap");
  }
  std::string_view where_;
};

/// Limit of a file that kubelet replaces under us: more than a ConfigMap can hold.
inline constexpr std::size_t kMaxConfigFile = 4 << 20;

}  // namespace corbd::rbd
