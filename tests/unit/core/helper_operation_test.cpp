#include "corbd/core/helper_operation.hpp"

#include "support/catch.hpp"

using namespace corbd;

namespace {

struct Add {
  using Reply = int;
  static constexpr std::string_view name = "add";
  static constexpr std::chrono::seconds patience{7};
  int one = 0, other = 0;
  Secret secret;
  static constexpr std::tuple fields{fields::required("one", &Add::one), fields::required("other", &Add::other),
                                     fields::required("secret", &Add::secret)};
  std::string what() const { return "add " + std::to_string(one); }
};

struct Refuse {
  using Reply = void;
  static constexpr std::string_view name = "refuse";
  bool really = false;
  static constexpr std::tuple fields{fields::required("really", &Refuse::really)};
  std::string what() const { return "refuse"; }
  std::chrono::seconds patience() const { return std::chrono::seconds(really ? 2 : 1); }
};

}  // namespace

namespace {

Secret heard;

result<int> perform(const Add& asked) {
  heard = asked.secret;
  return asked.one + asked.other;
}
result<> perform(const Refuse& asked) {
  if (asked.really) return Error{errc::busy, "refused"};
  return {};
}

template <class Operation>
result<typename Operation::Reply> done(const Operation& wanted) {
  const auto request = helper::request_of(wanted, {});
  return helper::reply_of<Operation>(helper::work(request.body, {helper::kKnown<Add, Refuse>}));
}

}  // namespace

TEST_CASE("an operation reaches its function with its fields, and its reply comes back") {
  const Secret bytes(std::string("\xff\x00\xc3\x28\"", 5));
  CHECK(done(Add{2, 3, bytes}).value() == 5);
  CHECK(heard == bytes);
}

TEST_CASE("an operation's error comes back, and one without a reply tells that it is done") {
  CHECK(done(Refuse{false}).has_value());
  CHECK(done(Refuse{true}).error().code == errc::busy);
}

TEST_CASE("a request says for people what it is, and how long it may take") {
  CHECK(helper::request_of(Add{4, 0, {}}, {}).what == "add 4");
  CHECK(helper::request_of(Add(), {}).report_after == std::chrono::seconds(7));
  CHECK(helper::request_of(Refuse{true}, {}).report_after == std::chrono::seconds(2));
}

TEST_CASE("a request that lacks a part, or whose secret is not base64, is refused with its place") {
  const auto part = helper::work({{"op", "add"}, {"one", 1}, {"other", 2}}, {helper::kKnown<Add>});
  CHECK(part.error().text == "add.secret: missing");
  const auto secret = helper::work({{"op", "add"}, {"one", 1}, {"other", 2}, {"secret", "*"}}, {helper::kKnown<Add>});
  CHECK(secret.error().text == "add.secret: not base64");
}

TEST_CASE("an operation that no room knows is refused by name") {
  const auto reply = helper::work({{"op", "nosuch"}}, {helper::kKnown<Add>, helper::kKnown<Refuse>});
  REQUIRE(!reply);
  CHECK(reply.error().code == errc::unimplemented);
  CHECK(reply.error().text == "the helper knows no operation nosuch");
}
