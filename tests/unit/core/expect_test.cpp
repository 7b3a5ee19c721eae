#include "corbd/core/expect.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

#include "corbd/core/wait.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"

using namespace corbd;

namespace {

/// Whether a process that does it is aborted.
bool aborts(const std::function<void()>& what) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDERR_FILENO);
    std::signal(SIGABRT, SIG_DFL);
    what();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace

TEST_CASE("a process whose expectation does not hold aborts, and goes on while it holds") {
  CHECK(aborts([] { expect(false, "water is dry"); }));
  CHECK_FALSE(aborts([] { expect(true, "water is wet"); }));
}

TEST_CASE("a thread that serves devices or reads files may not use what belongs to the control thread") {
  for (const auto kind : {ThreadKind::io, ThreadKind::pool})
    CHECK(aborts([kind] {
      this_thread_is = kind;
      expect_control_thread();
    }));
  CHECK_FALSE(aborts([] { expect_control_thread(); }));
}

TEST_CASE("an event that another thread sets aborts the process") {
  CHECK(aborts([] {
    test::Loop loop;
    Event event(loop.control(), loop.clock);
    this_thread_is = ThreadKind::pool;
    event.set();
  }));
}
