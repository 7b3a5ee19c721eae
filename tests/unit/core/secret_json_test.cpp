#include "corbd/core/secret_json.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "corbd/core/secret.hpp"
#include "helper_wire.hpp"
#include "support/catch.hpp"

using namespace corbd;

namespace {

/// Each character one too high, so that the secret itself is in memory only where a test puts it.
constexpr std::string_view kShifted = "dbobsz.pg.b.TdsjqufeTdbo";

/// `bytes` of the secret, again and again.
std::string make_secret(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(kShifted[i % kShifted.size()] - 1);
  return text;
}

bool is_secret(const char* at) {
  for (const char c : kShifted)
    if (*at++ != static_cast<char>(c - 1)) return false;
  return true;
}

/// Whether this process's memory has the secret anywhere. A sanitizer's shadow has no copies, and is terabytes.
bool in_memory(std::string& piece) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  constexpr std::size_t shadow = std::size_t{1} << 30;
  while (std::getline(maps, line)) {
    std::size_t from = 0, to = 0;
    char writable = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx %*c%c", &from, &to, &writable) != 3 || writable != 'w' ||
        to - from >= shadow)
      continue;
    for (; from + kShifted.size() <= to; from += piece.size() - kShifted.size()) {
      iovec own{piece.data(), piece.size()};
      iovec whole{reinterpret_cast<void*>(from), std::min(piece.size(), to - from)};
      const auto got = ::process_vm_readv(::getpid(), &own, 1, &whole, 1, 0);
      const std::string_view read(piece.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
      const char first = static_cast<char>(kShifted.front() - 1);
      for (auto at = read.find(first); at != read.npos && at + kShifted.size() <= read.size();
           at = read.find(first, at + 1))
        if (is_secret(read.data() + at)) return true;
    }
  }
  return false;
}

bool in_memory() {
  std::string piece(1 << 20, '\0');
  const bool found = in_memory(piece);
  wipe(piece);
  return found;
}

constexpr std::size_t kShort = 24, kLong = 20'000;

boost::json::object object_with_secret(std::size_t bytes) {
  std::string secret = make_secret(bytes);
  boost::json::object object{{"op", "luks_open"}, {"passphrase", secret}};
  wipe(secret);
  return object;
}

}  // namespace

TEST_CASE("serializing JSON with a secret leaves no copy but the text itself") {
  const auto bytes = GENERATE(kShort, kLong);
  REQUIRE_FALSE(in_memory());
  auto object = object_with_secret(bytes);
  std::string text = serialize_secret(object);
  CHECK(text.starts_with(R"({"op":"luks_open","passphrase":")"));
  CHECK(text.size() > bytes);
  CHECK(in_memory());
  wipe(object);
  wipe(text);
  CHECK_FALSE(in_memory());
}

TEST_CASE("a secret that was read from a JSON text is nowhere in memory when the value is gone") {
  const auto bytes = GENERATE(std::size_t{kShort}, std::size_t{kLong});
  auto object = object_with_secret(bytes);
  std::string text = serialize_secret(object);
  wipe(object);
  {
    boost::system::error_code failed;
    const auto value = parse_secret(text, failed);
    REQUIRE_FALSE(failed);
    CHECK(value.at("passphrase").as_string().size() == bytes);
    wipe(text);
    CHECK(in_memory());
  }
  CHECK_FALSE(in_memory());
  boost::system::error_code failed;
  CHECK(parse_secret(R"({"passphrase": )", failed).is_null());
  CHECK(failed);
}

TEST_CASE("a request to a helper leaves no secret in memory on its way") {
  auto body = object_with_secret(kLong);
  HelperRequest request{"luksOpen /dev/nbd0", std::move(body), {}, {}};
  std::string message = helper_wire::pack_request(request);
  wipe(request.body);
  {
    const auto received = helper_wire::unpack_request(message);
    REQUIRE(received);
    wipe(message);
    CHECK(received->body.at("passphrase").as_string().size() == kLong);
    CHECK(in_memory());
  }
  CHECK_FALSE(in_memory());
}
