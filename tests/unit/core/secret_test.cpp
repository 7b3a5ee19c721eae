#include "corbd/core/secret.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <csignal>

#include "corbd/core/process.hpp"
#include "support/catch.hpp"

using namespace corbd;

TEST_CASE("a secret leaves no bytes in memory when it is moved from, overwritten or destroyed", "[rule:15]") {
  const auto holds = [](const void* memory, std::size_t bytes, std::string_view text) {
    return ::memmem(memory, bytes, text.data(), text.size()) != nullptr;
  };
  alignas(Secret) std::array<char, sizeof(Secret)> place;
  auto* secret = new (place.data()) Secret(std::string("short-key-123"));
  CHECK(holds(place.data(), place.size(), "short-key-123"));
  const Secret taken(std::move(*secret));
  CHECK_FALSE(holds(place.data(), place.size(), "short-key-123"));
  CHECK(taken.reveal() == "short-key-123");
  *secret = taken;
  CHECK(secret->reveal() == "short-key-123");
  *secret = Secret(std::string("tiny"));
  CHECK_FALSE(holds(place.data(), place.size(), "key-123"));
  *secret = taken;
  secret->~Secret();
  CHECK_FALSE(holds(place.data(), place.size(), "short-key-123"));
  std::string source = "another-key";
  const Secret from(std::move(source));
  CHECK_FALSE(holds(&source, sizeof source, "another-key"));
}

TEST_CASE("wiping overwrites bytes, and takes an empty span without memory") {
  std::string text = "a-key";
  wipe(std::span(text.data(), 4));
  CHECK(text == std::string("\0\0\0\0y", 5));
  wipe(std::span<char>());
}

TEST_CASE("wiping a JSON object leaves none of its strings in memory") {
  boost::json::object body{{"op", "luks_open"},
                           {"in", boost::json::object{{"list", boost::json::array{"a-passphrase-in-a-list"}}}}};
  const auto& text = body.at("in").at("list").at(0).get_string();
  wipe(body.at("in"));
  CHECK(std::string_view(text.data(), text.size()) == std::string(text.size(), '\0'));
  wipe(body);
  CHECK(body.empty());
}

TEST_CASE(
    "a process that forbids core dumps leaves a backtrace and no dump, and other processes cannot read its memory") {
  std::array<int, 2> ends;
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_CORE, &unlimited);
    install_signal_handlers();
    forbid_core_dumps();
    if (::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0 || !core_dumps_forbidden()) ::_exit(1);
    ::raise(SIGSEGV);
    ::_exit(2);
  }
  ::close(ends[1]);
  std::string said(4096, '\0');
  std::size_t got = 0;
  for (ssize_t more = 1; more > 0 && got < said.size(); got += static_cast<std::size_t>(std::max<ssize_t>(more, 0)))
    more = ::read(ends[0], said.data() + got, said.size() - got);
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
  CHECK_FALSE(WCOREDUMP(status));
  CHECK_THAT(said, ContainsSubstring("unit_core"));
}
