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
  rare,      ///< written unless it has its default, so that earlier versions can read the rest
  whether    ///< as `added`, true if the optional holds something, whose members have keys of their own
};

/// A field is a member, or a path of members to one inside another: its key is in the object of the outer struct. An
/// optional on the path, and an alternative of a variant, exist if and only if their required key does:
///   fields::required("device", &Mount::nbd, &Nbd::device)  // std::optional<Nbd> nbd
///   fields::rare("timeout", &Mount::nbd, &Nbd::timeout)    // after it
template <Presence When, class... Steps>
struct Field {
  std::string_view key;
  std::tuple<Steps...> path;
  static constexpr Presence presence = When;
};
template <class... Steps>
constexpr Field<Presence::required, Steps...> required(std::string_view key, Steps... path) {
  return {key, {path...}};
}
template <class... Steps>
constexpr Field<Presence::added, Steps...> added(std::string_view key, Steps... path) {
  return {key, {path...}};
}
template <class... Steps>
constexpr Field<Presence::rare, Steps...> rare(std::string_view key, Steps... path) {
  return {key, {path...}};
}
template <class... Steps>
constexpr Field<Presence::whether, Steps...> whether(std::string_view key, Steps... path) {
  return {key, {path...}};
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
