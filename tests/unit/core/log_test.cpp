// The log when nobody takes it.
#include "corbd/core/log.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/json/parse.hpp>
#include <limits>
#include <sstream>

#include "corbd/core/fd.hpp"
#include "support/catch.hpp"

using namespace corbd;

namespace {

/// stderr is another file as long as this lives.
class Elsewhere {
 public:
  explicit Elsewhere(int fd) : kept_(::dup(STDERR_FILENO)) { ::dup2(fd, STDERR_FILENO); }
  ~Elsewhere() { ::dup2(kept_.get(), STDERR_FILENO); }
  Elsewhere(const Elsewhere&) = delete;
  Elsewhere& operator=(const Elsewhere&) = delete;

 private:
  const Fd kept_;
};

std::string drain(int fd) {
  std::string all(1 << 20, '\0');
  const ssize_t got = ::read(fd, all.data(), all.size());
  all.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return all;
}

}  // namespace

TEST_CASE("log lines that a full pipe refuses are dropped and counted, and the next line starts on a line of its own",
          "[failure:50]") {
  std::array<int, 2> ends;
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  const Fd reader(ends[0]), writer(ends[1]);
  ::fcntl(writer.get(), F_SETFL, 0);  // who writes would wait
  const Elsewhere elsewhere(writer.get());
  const std::string long_text(10000, 'x');
  for (int line = 0; line < 20; ++line) log::info("filling", {{"text", long_text}});
  const std::string first = drain(reader.get());
  CHECK(first.size() >= 4096);
  CHECK(first.size() <= 65536);
  log::info("after");
  const std::string then = drain(reader.get());
  CHECK_THAT(then, ContainsSubstring("\"log.dropped\""));
  CHECK_THAT(then, ContainsSubstring("\"after\""));
  CHECK(then.front() == (first.back() == '\n' ? '{' : '\n'));
  log::info("and on");
  CHECK_THAT(drain(reader.get()), !ContainsSubstring("log.dropped"));
}

TEST_CASE("a field of a log line has the type of its value") {
  std::array<int, 2> ends;
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  const Fd reader(ends[0]), writer(ends[1]);
  {
    const Elsewhere elsewhere(writer.get());
    log::info("fields", {{"text", std::string("a")},
                         {"yes", true},
                         {"less", -1},
                         {"most", std::numeric_limits<std::uint64_t>::max()},
                         {"half", 0.5}});
  }
  CHECK_THAT(drain(reader.get()),
             ContainsSubstring(R"("text":"a","yes":true,"less":-1,"most":18446744073709551615,"half":5E-1)"));
}

TEST_CASE("a full disk or a missing reader loses log lines and nothing else") {
  std::array<int, 2> ends;
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  ::close(ends[0]);
  const Fd without_reader(ends[1]), full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ::signal(SIGPIPE, SIG_IGN);
  const bool is_full = GENERATE(false, true);
  const Elsewhere elsewhere(is_full ? full.get() : without_reader.get());
  log::error("nobody hears this");
  SUCCEED();
}

TEST_CASE("the log's thread buffers lines for a slow reader, drops the oldest when full, and counts them") {
  std::array<int, 2> ends;
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  constexpr int kLines = 5000;  // more than pipe and queue hold
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    log::info("first");  // says what the tests before have dropped
    log::start_thread();
    for (int line = 0; line < kLines; ++line) log::info("filling", {{"line", line}, {"text", std::string(1000, 'x')}});
    log::drain(std::chrono::seconds(60));
    ::_exit(0);
  }
  ::close(ends[1]);
  const Fd reader(ends[0]);
  // It fills the pipe before anything is read.
  ::usleep(300'000);
  std::string text, part;
  while (!(part = drain(reader.get())).empty()) text += part;
  int status = 0;
  CHECK((::waitpid(child, &status, 0) == child && status == 0));
  int seen = 0, dropped = 0, last = -1;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto object = boost::json::parse(line).as_object();
    if (object.at("msg") == "log.dropped") {
      dropped += static_cast<int>(object.at("lines").as_int64());
      continue;
    }
    if (object.at("msg") == "first") {
      dropped = 0;
      continue;
    }
    ++seen;
    const auto number = static_cast<int>(object.at("line").as_int64());
    CHECK(number > last);
    last = number;
  }
  CHECK(last == kLines - 1);
  CHECK(dropped > 0);
  CHECK(seen > 2000);
  CHECK(seen + dropped == kLines);
}

TEST_CASE("the log's thread drops what a full disk or a pipe without a reader refuses, and does not block") {
  std::array<int, 2> ends;
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  ::close(ends[0]);
  const Fd without_reader(ends[1]), full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const bool is_full = GENERATE(false, true);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(is_full ? full.get() : without_reader.get(), STDERR_FILENO);
    log::start_thread();
    for (int line = 0; line < 100; ++line) log::info("nobody hears this", {{"line", line}});
    const auto began = std::chrono::steady_clock::now();
    log::drain(std::chrono::hours(1));
    // Ended, and not for its limit: a drain that waits is killed with the test.
    ::_exit(std::chrono::steady_clock::now() - began < std::chrono::hours(1) ? 0 : 1);
  }
  int status = 0;
  CHECK((::waitpid(child, &status, 0) == child && status == 0));
}

TEST_CASE("the level of the log can be changed while it writes") {
  std::array<int, 2> ends;
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  const Fd reader(ends[0]), writer(ends[1]);
  const Elsewhere elsewhere(writer.get());
  log::debug("unheard");
  CHECK(drain(reader.get()).empty());
  log::set_level(log::level_of("debug").value());
  log::debug("heard");
  log::set_level(log::level_of("info").value());
  CHECK_THAT(drain(reader.get()), ContainsSubstring(R"("level":"debug","msg":"heard"})"));
  CHECK_FALSE(log::level_of("loud"));
}
