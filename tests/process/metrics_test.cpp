// What Prometheus and a terminal get from the agent's real process.
#include <netinet/in.h>
#include <pty.h>
#include <termios.h>

#include <boost/asio/co_spawn.hpp>
#include <cstdlib>

#include "agent.hpp"
#include "corbd/core/process.hpp"
#include "corbd/volume/record_store.hpp"
#include "support/loop.hpp"
#include "support/places.hpp"
#include "support/sample_record.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::Agent;
using test::Ground;

namespace {

/// A volume that an agent began to stage before it died: it has a record and no device yet, so nobody heals it.
void leave_record(const Ground& ground) {
  test::Loop loop;
  BlockingPool pool(loop.control(), loop.clock, 1);
  const auto store = volume::make_record_store(pool, ground.at("state"), ground.at("runtime"));
  plan::Record record = test::sample_record();
  record.device.boot_id = read_boot_id().value();
  record.device.index.reset();
  record.source.cluster_id = "lab";
  record.claim = {"data", "shop", "pvc-1"};
  const auto run = [&](task<result<>> work) {
    std::optional<result<>> out;
    asio::co_spawn(loop.io, std::move(work), [&](std::exception_ptr, result<> done) { out.emplace(std::move(done)); });
    while (!out) {
      loop.io.restart();
      loop.io.run_one();
    }
    REQUIRE(*out);
  };
  run([](volume::RecordStore& in) -> task<result<>> {
    auto loaded = co_await in.load();
    if (!loaded) co_return loaded.error();
    co_return result<>();
  }(*store));
  run(store->save(record));
}

/// A port that nobody had a moment ago.
std::uint16_t free_port() {
  const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  REQUIRE(::bind(probe.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
  REQUIRE(::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
  return ntohs(at.sin_port);
}

struct Ended {
  int code = 0;
  std::string said;
};

Ended run(const std::string& command) {
  Ended ended;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  for (int byte = ::fgetc(pipe); byte != EOF; byte = ::fgetc(pipe)) ended.said.push_back(static_cast<char>(byte));
  ended.code = WEXITSTATUS(::pclose(pipe));
  return ended;
}

constexpr const char* kNoWrapping = "\x1b[?7l";
constexpr const char* kWrapping = "\x1b[?7h";

/// `corbd top` on a terminal of its own.
class Top {
 public:
  explicit Top(const Ground& ground) : runtime_(ground.at("runtime")) {
    int master = -1, slave = -1;
    REQUIRE(::openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
    keyboard_ = Fd(master);
    terminal_ = Fd(slave);
    REQUIRE(::fcntl(master, F_SETFL, O_NONBLOCK) == 0);
  }
  ~Top() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Top(const Top&) = delete;
  Top& operator=(const Top&) = delete;

  void start() {
    pid_ = ::fork();
    if (pid_ != 0) return;
    for (const int fd : {0, 1, 2}) ::dup2(terminal_.get(), fd);
    ::execl(test::corbd_program().c_str(), "corbd", "top", "--interval", "1", "--runtime-dir", runtime_.c_str(),
            nullptr);
    ::_exit(126);
  }
  pid_t pid() const { return pid_; }
  termios modes() const {
    termios now{};
    REQUIRE(::tcgetattr(terminal_.get(), &now) == 0);
    return now;
  }
  void press(const std::string& key) { REQUIRE(::write(keyboard_.get(), key.data(), 1) == 1); }
  bool shown(const std::string& text) const { return shown_.find(text) != std::string::npos; }
  /// Whether it does within a time that is long enough for any machine.
  bool shows(const std::string& text) {
    for (int tries = 0; tries < 600 && !shown(text); ++tries) {
      std::array<char, 4096> bytes{};
      const ssize_t got = ::read(keyboard_.get(), bytes.data(), bytes.size());
      if (got > 0)
        shown_.append(bytes.data(), static_cast<std::size_t>(got));
      else
        std::this_thread::sleep_for(50ms);
    }
    return shown(text);
  }
  /// Its exit code, once it has ended; -1 after a signal.
  int ended() {
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  const std::string runtime_;
  Fd keyboard_, terminal_;
  pid_t pid_ = -1;
  std::string shown_;
};

}  // namespace

TEST_CASE("a real Prometheus takes the metrics, the dashboard's queries show data, and the alerts evaluate") {
  const Ground ground;
  leave_record(ground);
  const std::string port = std::to_string(free_port());
  Agent::Options options;
  options.more = {"--metricsport", port, "--metricsip", "127.0.0.1", "--volume-metrics", "latency"};
  const Agent agent(ground, options);
  REQUIRE(agent.answers());
  // A call that ended, for the panels of calls.
  run(test::corbd_program() + " csi unstage --endpoint unix://" + ground.at("csi.sock") +
      " --volume-id other --staging-path " + ground.at("kubelet") + "/plugins/other");
  const auto told = run(test::tests_folder() + "/process/prometheus " + port);
  INFO(told.said);
  INFO(agent.log());
  // A CI without Prometheus would pass without having looked.
  const bool may_skip = std::getenv("CI") == nullptr;
  if (told.code == 77) WARN(told.said);
  CHECK((told.code == 0 || (told.code == 77 && may_skip)));
}

TEST_CASE("corbd top on a terminal shows the volumes, takes keys, and leaves the terminal as it was") {
  const std::string ending = GENERATE(std::string("q"), std::string("\x03"), std::string("TERM"));
  const Ground ground;
  leave_record(ground);
  const Agent agent(ground);
  REQUIRE(agent.answers());
  Top top(ground);
  const termios before = top.modes();
  top.start();
  CHECK(top.shows("shop/data"));
  CHECK(top.shows(kNoWrapping));
  top.press("b");
  CHECK(top.shows("[bytes]"));
  CHECK_FALSE(top.shown(kWrapping));
  if (ending == "TERM")
    ::kill(top.pid(), SIGTERM);
  else
    top.press(ending);
  CHECK(top.shows("\x1b[?1049l"));
  CHECK(top.shown(kWrapping));
  CHECK(top.ended() == 0);
  CHECK(top.modes().c_lflag == before.c_lflag);
}

TEST_CASE("corbd top survives an agent that is silent for seconds, and takes keys meanwhile") {
  const Ground ground;
  leave_record(ground);
  const Agent agent(ground);
  REQUIRE(agent.answers());
  Top top(ground);
  top.start();
  CHECK(top.shows("shop/data"));
  REQUIRE(::kill(agent.pid(), SIGSTOP) == 0);
  std::this_thread::sleep_for(3500ms);
  top.press("b");
  CHECK(top.shows("[bytes]"));
  const auto pressed = std::chrono::steady_clock::now();
  top.press("q");
  CHECK(top.ended() == 0);
  CHECK(std::chrono::steady_clock::now() - pressed < 5s);
}
