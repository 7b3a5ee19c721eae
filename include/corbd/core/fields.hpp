// The fields of a struct, said once: a table of keys and members beside them. By it core/fields_json.hpp writes the
// struct, reads it back, and names the place of a mistake.
//   struct Staging {
//     std::string path;
//     static constexpr std::tuple fields{fields::required("path", &Staging::path)};  // in the order of writing
//   };
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "corbd/core/result.hpp"

namespace corbd::fields {

enum class Presence {
  required,  ///< always written; a text without it is not read
  added,     ///< always written; earlier versions did not, and their texts leave the default
  rare       ///< written unless it has its default, so that earlier versions can read the rest
};

template <class T, class Member, Presence When>
struct Field {
  std::string_view key;
  Member T::* member;
  static constexpr Presence presence = When;
};
template <class T, class Member>
constexpr Field<T, Member, Presence::required> required(std::string_view key, Member T::* member) {
  return {key, member};
}
template <class T, class Member>
constexpr Field<T, Member, Presence::added> added(std::string_view key, Member T::* member) {
  return {key, member};
}
template <class T, class Member>
constexpr Field<T, Member, Presence::rare> rare(std::string_view key, Member T::* member) {
  return {key, member};
}

/// Each member of such a struct has a key, or it does not compile. One that keeps members to itself says so:
/// `static constexpr bool has_unsaved_members = true`.
template <class T>
concept Listed = requires { T::fields; };

/// Specialize it for a value that is written as another one: `static To to(const T&)`, `static result<T> from(To)`; or
/// as JSON: `static json::value write(const T&, const json::storage_ptr&)`, `static result<T> read(const
/// json::value&)`. The error's text is the mistake alone; its code does not count.
template <class T>
struct Written;

/// Counted since 1970 in the type's own unit.
template <class Duration>
struct Written<std::chrono::sys_time<Duration>> {
  static std::int64_t to(std::chrono::sys_time<Duration> time) { return time.time_since_epoch().count(); }
  static result<std::chrono::sys_time<Duration>> from(std::int64_t count) {
    return std::chrono::sys_time<Duration>(Duration(count));
  }
};

}  // namespace corbd::fields
