#include "failure.hpp"

#include <cerrno>

#include "connect.hpp"
#include "support/catch.hpp"

using namespace corbd;

TEST_CASE("errno values of the Ceph libraries map to our error codes") {
  const auto [error, code] = GENERATE(table<int, errc>({{ENOENT, errc::not_found},
                                                        {EPERM, errc::permission_denied},
                                                        {EACCES, errc::permission_denied},
                                                        {ESHUTDOWN, errc::fenced},
                                                        {EBUSY, errc::in_use},
                                                        {EROFS, errc::in_use},
                                                        {ETIMEDOUT, errc::unavailable},
                                                        {ENOTCONN, errc::unavailable},
                                                        {EOPNOTSUPP, errc::unimplemented},
                                                        {ENOMEM, errc::exhausted},
                                                        {EIO, errc::io},
                                                        {ENOSPC, errc::io},
                                                        {EUCLEAN, errc::io}}));
  CHECK(rbd::code_of(-error) == code);
}

TEST_CASE("a refused user hears how to tell one that is gone from a wrong key, which the cluster does not say") {
  const auto error = rbd::connect_error({"lab", {"10.0.0.9"}, "node", Secret("key"), {}}, GENERATE(-EACCES, -EPERM));
  CHECK(error.code == errc::unauthenticated);
  CHECK_THAT(error.text, ContainsSubstring("`ceph auth get client.node`"));
}

TEST_CASE("a failure says what was done, why it failed and the way out") {
  const auto error = rbd::failure("opening image a/b", -EACCES, "give the user caps");
  CHECK(error.text == "opening image a/b: Permission denied: give the user caps");
  CHECK(rbd::failure("x", -EIO).text == "x: Input/output error");
}

TEST_CASE("the error of a blocklisted client has the word blocklisted, as in Ceph") {
  CHECK_THAT(rbd::reason(-ESHUTDOWN), ContainsSubstring("blocklisted"));
}

TEST_CASE("a malformed key is recognised without asking a cluster") {
  CHECK(rbd::is_key("AQBSdFhcGdbYORAAK2SAoYGZ2fmEnxPTPuGmKA=="));
  const std::string text = GENERATE(
      "", "no key at all", "AQBSdFhcGdbYORAAK2SAoYGZ2fmEnxPTPuGmKA",
      "AQBSdFhcGdbYOQAAK2SAoYGZ2fmEnxPTPuGmKA==", "AQBSdFhcGdbYORAAK2SAoYGZ2fmEnxPTPuGm\n===", "QUFBQUFBQUFBQUFB");
  CHECK_FALSE(rbd::is_key(text));
}
