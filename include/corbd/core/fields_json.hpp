// Writes and reads structs as JSON, by their tables of fields. A mistake names its place: "record.stagings[1].path: not
// a text".
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <boost/pfr/core.hpp>
#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "corbd/core/fields.hpp"

namespace corbd::fields {

namespace json = boost::json;

template <class T>
concept WrittenAsOther = requires(const T& value) { Written<T>::to(value); };
template <class T>
concept WrittenAsJson = requires(const json::value& value) { Written<T>::read(value); };

/// Where a value is, for the text of an error.
struct Place {
  const Place* above = nullptr;
  std::string_view key;   ///< in an object, or the name of the whole
  std::size_t index = 0;  ///< in a list, if there is no key
  std::string text() const;
};

/// How a text is read.
struct Manner {
  errc code = errc::state_corrupt;  ///< a mistake has it
  bool go = false;  ///< as Go does: keys match in any case, the last one counts, and null counts as absent
};

/// Null: the object does not have it. `go` as Manner's.
const json::value* find(const json::object& object, std::string_view key, bool go);

namespace detail {

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_variant = false;
template <class... Ts>
inline constexpr bool is_variant<std::variant<Ts...>> = true;
template <class T>
inline constexpr bool is_list = false;
template <class T>
inline constexpr bool is_list<std::vector<T>> = true;

template <class T, class Member>
T outer_of(Member T::*);
/// Whether a path goes through a struct of that type.
template <class T, Presence When, class... Steps>
constexpr bool enters(const Field<When, Steps...>&) {
  return (std::is_same_v<decltype(outer_of(std::declval<Steps>())), T> || ...);
}

template <class Whole, class Member>
constexpr std::size_t keys_of();
template <class Whole, template <class...> class List, class... Members>
constexpr std::size_t keys_of_all(const List<Members...>*) {
  return (std::size_t() + ... + keys_of<Whole, std::remove_reference_t<Members>>());
}
/// Counts the keys that a member has in the table of `Whole`, whose member it is, or that of another member.
template <class Whole, class Member>
constexpr std::size_t keys_of() {
  constexpr auto is_entered = [](const auto&... field) { return (enters<Member>(field) || ...); };
  if constexpr (is_optional<Member>)
    return keys_of<Whole, typename Member::value_type>();
  else if constexpr (is_variant<Member>)
    return keys_of_all<Whole>(static_cast<Member*>(nullptr));
  else if constexpr (std::apply(is_entered, Whole::fields))
    return keys_of_all<Whole>(static_cast<decltype(boost::pfr::structure_tie(std::declval<Member&>()))*>(nullptr));
  else
    return 1;
}

template <class T>
constexpr bool has_all_keys() {
  constexpr auto count = [](const auto&... field) {
    return (std::size_t() + ... + std::size_t(field.presence != Presence::whether));
  };
  if constexpr (requires { T::has_unsaved_members; })
    return true;
  else
    return keys_of<T, T>() == std::apply(count, T::fields);
}

/// Returns the member at the end of a path. Null: an optional on it is empty, or a variant holds something else, and
/// `make` does not make it.
template <bool make, class Outer, class T, class Member, class... Rest>
auto* reach(Outer& outer, Member T::* step, Rest... rest) {
  if constexpr (is_optional<std::remove_const_t<Outer>>) {
    if constexpr (make)
      if (!outer) outer.emplace();
    return outer ? reach<make>(*outer, step, rest...) : nullptr;
  } else if constexpr (is_variant<std::remove_const_t<Outer>>) {
    if constexpr (make)
      if (!std::holds_alternative<T>(outer)) outer.template emplace<T>();
    auto* held = std::get_if<T>(&outer);
    return held != nullptr ? reach<make>(*held, step, rest...) : nullptr;
  } else if constexpr (sizeof...(rest) > 0) {
    return reach<make>(outer.*step, rest...);
  } else {
    return &(outer.*step);
  }
}
template <bool make, class T, Presence When, class... Steps>
auto* reach(T& value, const Field<When, Steps...>& field) {
  return std::apply([&](auto... steps) { return reach<make>(value, steps...); }, field.path);
}

Error mistake(const Place& place, std::string_view what, const Manner& manner);

template <class T>
json::value write(const T& value, const json::storage_ptr& memory);

template <class T, class Fields>
void write_into(json::object& object, const T& value, const Fields& fields) {
  const auto write_field = [&](const auto& field) {
    constexpr Presence presence = std::decay_t<decltype(field)>::presence;
    const auto* member = reach<false>(value, field);
    if (member == nullptr) return;
    if constexpr (presence == Presence::rare)
      if (T defaults; *member == *reach<true>(defaults, field)) return;
    if constexpr (presence == Presence::whether)
      object[field.key] = member->has_value();
    else
      object[field.key] = write(*member, object.storage());
  };
  std::apply([&](const auto&... field) { (write_field(field), ...); }, fields);
}

template <class T>
json::value write(const T& value, const json::storage_ptr& memory) {
  if constexpr (Listed<T>) {
    static_assert(has_all_keys<T>(), "a member without a key is lost");
    json::object object(memory);
    write_into(object, value, T::fields);
    return object;
  } else if constexpr (WrittenAsJson<T>) {
    return Written<T>::write(value, memory);
  } else if constexpr (WrittenAsOther<T>) {
    return write(Written<T>::to(value), memory);
  } else if constexpr (is_optional<T>) {
    return value ? write(*value, memory) : json::value(memory);
  } else if constexpr (is_list<T>) {
    json::array list(memory);
    for (const auto& one : value) list.push_back(write(one, memory));
    return list;
  } else if constexpr (requires { typename T::mapped_type; }) {
    json::object object(memory);
    for (const auto& [key, one] : value) object[key] = write(one, memory);
    return object;
  } else {
    return json::value(value, memory);
  }
}

/// Reads a value of each kind of type. A class, so that each sees all others.
struct Reader {
  const Manner& manner;

  Error no(const Place& place, std::string_view what) const { return mistake(place, what, manner); }

  template <class T, class Fields>
  result<> object(const json::object& from, T& into, const Fields& fields, const Place& place) const {
    result<> done;
    const auto read_field = [&](const auto& field) {
      constexpr Presence presence = std::decay_t<decltype(field)>::presence;
      constexpr bool makes = presence == Presence::required;
      const auto* there = find(from, field.key, manner.go);
      const Place at{&place, field.key};
      if (there == nullptr) {
        if (makes && reach<false>(into, field) != nullptr) done = no(at, "missing");
      } else if (auto* member = reach<makes>(into, field); member != nullptr) {
        if constexpr (presence == Presence::whether)
          done = whether(*there, *member, at);
        else
          done = value(*there, *member, at);
      }
      return done.has_value();
    };
    std::apply([&](const auto&... field) { static_cast<void>((read_field(field) && ...)); }, fields);
    return done;
  }

  template <class T>
  result<> whether(const json::value& from, std::optional<T>& into, const Place& place) const {
    bool is = false;
    auto done = value(from, is, place);
    if (is) into.emplace();
    return done;
  }
  template <Listed T>
  result<> value(const json::value& from, T& into, const Place& place) const {
    const auto* fields = from.if_object();
    return fields == nullptr ? no(place, "not an object") : object(*fields, into, T::fields, place);
  }
  template <WrittenAsJson T>
  result<> value(const json::value& from, T& into, const Place& place) const {
    auto read = Written<T>::read(from);
    if (!read) return no(place, read.error().text);
    into = std::move(*read);
    return {};
  }
  template <WrittenAsOther T>
  result<> value(const json::value& from, T& into, const Place& place) const {
    std::decay_t<decltype(Written<T>::to(into))> written{};
    if (auto done = value(from, written, place); !done) return done;
    auto read = Written<T>::from(std::move(written));
    if (!read) return no(place, read.error().text);
    into = std::move(*read);
    return {};
  }
  template <class T>
  result<> value(const json::value& from, std::optional<T>& into, const Place& place) const {
    return value(from, into.emplace(), place);
  }
  template <class T>
  result<> value(const json::value& from, std::vector<T>& into, const Place& place) const {
    const auto* list = from.if_array();
    if (list == nullptr) return no(place, "not a list");
    for (std::size_t at = 0; at < list->size(); ++at)
      if (auto done = value((*list)[at], into.emplace_back(), {&place, {}, at}); !done) return done;
    return {};
  }
  template <class T>
  result<> value(const json::value& from, std::map<std::string, T>& into, const Place& place) const {
    const auto* members = from.if_object();
    if (members == nullptr) return no(place, "not an object");
    for (const auto& [key, one] : *members)
      if (auto done = value(one, into[key], {&place, key}); !done) return done;
    return {};
  }
  result<> value(const json::value& from, std::string& into, const Place& place) const {
    if (!from.is_string()) return no(place, "not a text");
    into = from.get_string();
    return {};
  }
  result<> value(const json::value& from, bool& into, const Place& place) const {
    if (!from.is_bool()) return no(place, "neither true nor false");
    into = from.get_bool();
    return {};
  }
  template <std::integral T>
  result<> value(const json::value& from, T& into, const Place& place) const {
    boost::system::error_code failed;
    const T number = from.is_number() ? from.to_number<T>(failed) : T();
    if (failed || !from.is_number()) return no(place, "not a number that fits");
    into = number;
    return {};
  }
};

}  // namespace detail

template <Listed T>
json::object to_json(const T& value, const json::storage_ptr& memory = {}) {
  static_assert(detail::has_all_keys<T>(), "a member without a key is lost");
  json::object object(memory);
  detail::write_into(object, value, T::fields);
  return object;
}

/// `name` is the whole's, for the text of an error: "record". Keys that no field has are passed over: a later version
/// may have written them.
template <Listed T>
result<T> from_json(const json::object& object, std::string_view name, const Manner& manner = {}) {
  T value;
  if (auto done = detail::Reader{manner}.object(object, value, T::fields, {nullptr, name}); !done) return done.error();
  return value;
}

result<json::object> parse(std::string_view text, std::string_view name, const Manner& manner = {});
template <Listed T>
result<T> from_text(std::string_view text, std::string_view name, const Manner& manner = {}) {
  const auto object = parse(text, name, manner);
  return object ? from_json<T>(*object, name, manner) : result<T>(object.error());
}

/// A file of ours: one line, an object that begins with its version.
std::string to_file(int version, json::object fields);
/// state_newer: a later version wrote it.
result<json::object> parse_file(std::string_view text, std::string_view name, int newest);
template <Listed T>
std::string to_file(const T& value, int version) {
  return to_file(version, fields::to_json(value));
}

}  // namespace corbd::fields
