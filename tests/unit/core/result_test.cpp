#include "corbd/core/result.hpp"

#include <set>

#include "support/catch.hpp"

using namespace corbd;

namespace {
std::vector<errc> all() {
  std::vector<errc> codes;
  for (int i = 0; i <= static_cast<int>(errc_last); ++i) codes.push_back(static_cast<errc>(i));
  return codes;
}
}  // namespace

TEST_CASE("every error code has a name of its own") {
  std::set<std::string_view> names;
  for (const errc code : all()) CHECK(names.insert(name(code)).second);
}

TEST_CASE("every error code maps to a gRPC status code") {
  for (const errc code : all()) {
    CHECK(grpc_code(code) >= 0);
    CHECK(grpc_code(code) <= 16);
  }
  CHECK(grpc_code(errc::ok) == 0);
}

TEST_CASE("codes after which kubelet forgets a volume are exactly those that are not 'may still be running'",
          "[rule:12]") {
  for (const errc code : all()) {
    const int grpc = grpc_code(code);
    const bool may_run = grpc == 10 || grpc == 14 || grpc == 8 || grpc == 4 || grpc == 1;
    CHECK(final_for_caller(code) == !may_run);
  }
}

TEST_CASE("an error that passes by itself is never final for the caller") {
  for (const errc code : {errc::busy, errc::exhausted, errc::timed_out, errc::unavailable, errc::unreachable,
                          errc::in_use, errc::unproven, errc::fenced, errc::node_fenced, errc::state_write, errc::io})
    CHECK_FALSE(final_for_caller(code));
}

TEST_CASE("context precedes an error's text") {
  const Error error = with_context("opening image a/b", {errc::not_found, "no such image"});
  CHECK(error.code == errc::not_found);
  CHECK(error.text == "opening image a/b: no such image");
}
