// What Prometheus and a terminal get from the agent's real process.
#include <netinet/in.h>
#include <pty.h>
#include <termios.h>

#include <boost/asio/co_spawn.hpp>

#include "agent.hpp"
#include "corbd/core/process.hpp"
#include "corbd/volume/record_store.hpp"
#include "support/loop.hpp"
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
  record.boot_id = read_boot_id().value();
  record.device.reset();
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
  run(std::string(CORBD) + " csi unstage --endpoint unix://" + ground.at("csi.sock") +
      " --volume-id other --staging-path " + ground.at("kubelet") + "/plugins/other");
  const auto told = run(CORBD_TESTS "/process/prometheus " + port);
  INFO(told.said);
  INFO(agent.log());
  if (told.code == 77) WARN(told.said);
  CHECK((told.code == 0 || told.code == 77));
}

TEST_CASE("corbd top on a terminal shows the volumes, takes keys, and leaves the terminal as it was") {
  const std::string ending = GENERATE(std::string("q"), std::string("\x03"), std::string("TERM"));
  const Ground ground;
  leave_record(ground);
  const Agent agent(ground);
  REQUIRE(agent.answers());
  int master = -1, slave = -1;
  REQUIRE(::openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
  const Fd keyboard(master), terminal(slave);
  termios before{};
  REQUIRE(::tcgetattr(terminal.get(), &before) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (const int fd : {0, 1, 2}) ::dup2(terminal.get(), fd);
    ::execl(CORBD, CORBD, "top", "--interval", "1", "--runtime-dir", ground.at("runtime").c_str(), nullptr);
    ::_exit(126);
  }
  std::string shown;
  const auto shows = [&](const std::string& text) {
    for (int tries = 0; tries < 600 && shown.find(text) == std::string::npos; ++tries) {
      std::array<char, 4096> bytes{};
      ::fcntl(keyboard.get(), F_SETFL, O_NONBLOCK);
      const ssize_t got = ::read(keyboard.get(), bytes.data(), bytes.size());
      if (got > 0)
        shown.append(bytes.data(), static_cast<std::size_t>(got));
      else
        std::this_thread::sleep_for(50ms);
    }
    return shown.find(text) != std::string::npos;
  };
  CHECK(shows("shop/data"));
  REQUIRE(::write(keyboard.get(), "b", 1) == 1);
  CHECK(shows("[bytes]"));
  if (ending == "TERM")
    ::kill(pid, SIGTERM);
  else
    REQUIRE(::write(keyboard.get(), ending.data(), 1) == 1);
  CHECK(shows("\x1b[?1049l"));
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  termios after{};
  REQUIRE(::tcgetattr(terminal.get(), &after) == 0);
  CHECK(after.c_lflag == before.c_lflag);
}
