// The log when nobody takes it.
#include "corbd/core/log.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>

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

TEST_CASE("lines that a full pipe does not take are dropped and counted, and the next that it takes begins anew") {
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

TEST_CASE("a log on a full disk, or without a reader, costs nothing but itself") {
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
