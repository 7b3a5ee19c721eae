// An operation of a helper, said once as a struct. Its port calls it, the helper performs it, and neither spells a key:
//   struct Trim {
//     using Reply = std::uint64_t;  // or void
//     static constexpr std::string_view name = "trim";
//     std::string target;
//     static constexpr std::tuple fields{fields::required("target", &Trim::target)};
//     std::string what() const { return "trim " + target; }  // for people
//     static constexpr std::chrono::seconds patience{600};     // or a function; then it is reported stuck
//   };
//   result<std::uint64_t> perform(const Trim&);  // in the helper
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

#include "corbd/core/base64.hpp"
#include "corbd/core/fields_json.hpp"
#include "corbd/core/helper_call.hpp"
#include "corbd/core/helper_pool.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/core/secret_json.hpp"

namespace corbd::helper {

/// Both sides are one program, so a number says enough.
template <class Enum>
struct AsNumber {
  static int to(Enum value) { return static_cast<int>(value); }
  static result<Enum> from(int value) { return static_cast<Enum>(value); }
};

template <class T>
struct Answer {
  T reply;
  static constexpr std::tuple fields{fields::required("reply", &Answer::reply)};
};

template <class Operation>
std::chrono::seconds patience_of(const Operation& wanted) {
  if constexpr (requires { wanted.patience(); })
    return wanted.patience();
  else
    return Operation::patience;
}

template <class Operation>
HelperRequest request_of(const Operation& wanted, HelperOwner owner) {
  HelperRequest request{wanted.what(), fields::to_json(wanted, wiping_storage()), std::move(owner),
                        patience_of(wanted)};
  request.body["op"] = Operation::name;
  return request;
}

template <class Operation>
result<typename Operation::Reply> reply_of(const result<boost::json::object>& said) {
  using Reply = typename Operation::Reply;
  if (!said) return said.error();
  if constexpr (std::is_void_v<Reply>) {
    return {};
  } else {
    auto answer = fields::from_json<Answer<Reply>>(*said, Operation::name, {errc::internal});
    return answer ? result<Reply>(std::move(answer->reply)) : result<Reply>(answer.error());
  }
}

template <class Operation>
task<result<typename Operation::Reply>> call(HelperPool& helpers, Operation wanted, HelperOwner owner, Until until) {
  co_return reply_of<Operation>(co_await helpers.call(request_of(wanted, std::move(owner)), until));
}

/// In a helper of its own, for a thread that may wait: see call_helper().
template <class Operation>
result<typename Operation::Reply> call(const Operation& wanted, HelperOwner owner, const HelperProgram& program) {
  return reply_of<Operation>(call_helper(request_of(wanted, std::move(owner)), program));
}

/// In the helper.
template <class Operation>
result<boost::json::object> perform_request(const boost::json::object& request) {
  const auto wanted = fields::from_json<Operation>(request, Operation::name, {errc::internal});
  if (!wanted) return wanted.error();
  auto done = perform(*wanted);
  if (!done) return done.error();
  if constexpr (std::is_void_v<typename Operation::Reply>)
    return boost::json::object();
  else
    return fields::to_json(Answer<typename Operation::Reply>{std::move(*done)});
}

struct Known {
  std::string_view name;
  result<boost::json::object> (*perform)(const boost::json::object& request);
};
/// All operations of a room.
template <class... Operations>
inline constexpr std::array kKnown{Known{Operations::name, &perform_request<Operations>}...};

/// unimplemented: no room knows the operation.
result<boost::json::object> work(const boost::json::object& request,
                                 std::initializer_list<std::span<const Known>> rooms);

}  // namespace corbd::helper

/// In base64, because its bytes may be any.
template <>
struct corbd::fields::Written<corbd::Secret> {
  static json::value write(const Secret& secret, const json::storage_ptr& memory) {
    const Secret text(to_base64(secret.reveal()));
    return json::value(text.reveal(), memory);
  }
  static result<Secret> read(const json::value& from) {
    auto bytes = from.is_string() ? from_base64(from.get_string()) : std::nullopt;
    if (!bytes) return Error{errc::internal, "not base64"};
    return Secret(std::move(*bytes));
  }
};
