// Agents after each other on one state directory, as systemd's unit and two pods have them. No device is there to be
// given.
#include <poll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <optional>

#include "agent.hpp"
#include "corbd/core/process.hpp"
#include "support/places.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::Agent;
using test::Ground;

namespace {

Agent::Options handed_over(const std::string& pod = {}, bool kept = false) {
  Agent::Options options;
  options.more = {"--handover"};
  if (kept) options.more.emplace_back("--keeper");
  if (!pod.empty()) options.more.insert(options.more.end(), {"--pod", pod});
  return options;
}

/// The exit code of a command of corbd about the ground's agent.
int says(const Ground& ground, const std::string& command) {
  const std::string line = test::corbd_program() + " " + command + " --runtime-dir " + ground.at("runtime") + " >>" +
                           ground.at("said") + " 2>&1";
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool eventually(const std::function<bool()>& is_so) {
  for (int tries = 0; tries < 600; ++tries) {
    if (is_so()) return true;
    std::this_thread::sleep_for(50ms);
  }
  return false;
}

bool lives(pid_t pid) {
  siginfo_t end{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == 0;
}

bool alive_for(const Ground& ground, const std::string& pod) { return says(ground, "alive --ready --pod " + pod) == 0; }

/// The agent itself, or its keeper.
bool holds_lock(const Ground& ground, const Agent& agent) {
  const int holder = std::atoi(ground.read("state/lock").c_str());
  return holder == agent.pid() || parent_of("/proc", holder) == agent.pid();
}

/// How often the agents logged that event.
std::size_t times(const Ground& ground, const std::string& event) {
  const std::string log = ground.read("log");
  std::size_t times = 0;
  for (auto at = log.find(event); at != std::string::npos; at = log.find(event, at + 1)) ++times;
  return times;
}

/// Plays the agent that serves: it has the lock, answers one next agent, and then says nothing.
class SilentServer {
 public:
  explicit SilentServer(const Ground& ground)
      : lock_(lock_folder(ground.at("state")).value()), listener_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    std::filesystem::create_directory(ground.at("state/volumes"));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ground.at("runtime/handover.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_.get(), 1) == 0);
  }
  void answer() {
    pollfd asks{listener_.get(), POLLIN, 0};
    REQUIRE(::poll(&asks, 1, 30'000) == 1);
    next_ = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<char, 4096> hello;
    REQUIRE(::recv(next_.get(), hello.data(), hello.size(), 0) > 0);
    constexpr std::string_view yes = R"({"answer":"yes"})";
    REQUIRE(::send(next_.get(), yes.data(), yes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(yes.size()));
  }

 private:
  Fd lock_, listener_, next_;
};

}  // namespace

TEST_CASE("an agent in a pod that has handed over stays in reserve, is ready, and ends at once when its pod does",
          "[failure:151]") {
  const bool kept = GENERATE(false, true);
  const Ground ground;
  Agent first(ground, handed_over("pod-1", kept));
  REQUIRE(first.answers());
  Agent second(ground, handed_over("pod-2", kept));
  REQUIRE(eventually([&] { return holds_lock(ground, second); }));
  REQUIRE(second.answers());
  CHECK(lives(first.pid()));
  CHECK(alive_for(ground, "pod-1"));
  REQUIRE(eventually([&] { return first.log().find("handover.in_reserve") != std::string::npos; }));
  ::kill(first.pid(), SIGTERM);
  CHECK(first.ended() == 0);
  CHECK(second.answers());
  CHECK(holds_lock(ground, second));
}

TEST_CASE("kubelet's watcher sees no socket come or go during a handover, and a call meanwhile is answered") {
  const bool kept = GENERATE(false, true);
  const Ground ground;
  std::filesystem::create_directory(ground.at("kubelet") + "/plugins_registry");
  const auto options = [&](const std::string& pod) {
    auto of = handed_over(pod, kept);
    of.more.insert(of.more.end(), {"--kubelet-registration-path", "/csi.sock"});
    return of;
  };
  Agent first(ground, options("pod-1"));
  REQUIRE(first.answers());
  const std::string registration = ground.at("kubelet") + "/plugins_registry/rbd.csi.ceph.com-reg.sock";
  REQUIRE(eventually([&] { return std::filesystem::exists(registration); }));
  const Fd watcher(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  REQUIRE(::inotify_add_watch(watcher.get(), (ground.at("kubelet") + "/plugins_registry").c_str(),
                              IN_CREATE | IN_DELETE | IN_MOVE) >= 0);
  struct stat before{}, after{};
  REQUIRE(::stat(ground.at("csi.sock").c_str(), &before) == 0);
  Agent second(ground, options("pod-2"));
  while (!holds_lock(ground, second)) {
    REQUIRE(lives(second.pid()));
    CHECK(second.probe().find("\"OK\"") != std::string::npos);
  }
  REQUIRE(second.answers());
  REQUIRE(::stat(ground.at("csi.sock").c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  std::array<char, 4096> events;
  CHECK(::read(watcher.get(), events.data(), events.size()) < 0);
  ::kill(second.pid(), SIGKILL);
  ::kill(first.pid(), SIGKILL);
}

TEST_CASE("an agent in reserve serves once no other does, and the dead agent's pod then asks it for a handover",
          "[failure:151]") {
  const bool kept = GENERATE(false, true);
  const Ground ground;
  Agent first(ground, handed_over("pod-1", kept));
  REQUIRE(first.answers());
  {
    Agent second(ground, handed_over("pod-2", kept));
    REQUIRE(eventually([&] { return holds_lock(ground, second); }));
    REQUIRE(second.answers());
  }
  REQUIRE(eventually([&] { return holds_lock(ground, first); }));
  CHECK(first.answers());
  Agent again(ground, handed_over("pod-2", kept));
  REQUIRE(eventually([&] { return holds_lock(ground, again); }));
  CHECK(again.answers());
  CHECK(lives(first.pid()));
}

TEST_CASE("an agent serves on beside a next one that cannot read a record", "[failure:230]") {
  const Ground ground;
  Agent first(ground, handed_over("pod-1"));
  REQUIRE(first.answers());
  const std::string unreadable = ground.at("state/volumes/unreadable.json");
  REQUIRE(std::filesystem::create_directory(unreadable));
  {
    Agent second(ground, handed_over("pod-2"));
    CHECK(second.ended() == 1);
    CHECK_THAT(second.log(), ContainsSubstring(unreadable));
    CHECK(first.answers());
    CHECK(holds_lock(ground, first));
  }
  REQUIRE(std::filesystem::remove(unreadable));
  Agent third(ground, handed_over("pod-3"));
  REQUIRE(eventually([&] { return holds_lock(ground, third); }));
  CHECK(third.answers());
}

TEST_CASE("an agent serves on after a next one that ended with the lock in its hand", "[failure:230]") {
  const bool refuses = GENERATE(true, false);
  const bool kept = GENERATE(false, true);
  const Ground ground;
  Agent first(ground, handed_over("pod-1", kept));
  REQUIRE(first.answers());
  {
    auto options = handed_over("pod-2");
    options.more.insert(options.more.end(),
                        {"--failpoint", std::string("takeover.records=") + (refuses ? "error" : "kill")});
    Agent second(ground, options);
    CHECK(second.ended() == (refuses ? 1 : -SIGKILL));
  }
  REQUIRE(eventually([&] { return first.log().find("handover.undone") != std::string::npos; }));
  CHECK(first.answers());
  REQUIRE(eventually([&] { return holds_lock(ground, first); }));
  const Agent third(ground, handed_over("pod-3", kept));
  REQUIRE(eventually([&] { return holds_lock(ground, third); }));
  CHECK(third.answers());
}

TEST_CASE(
    "kubelet's watcher sees no socket come or go when the agent beside a keeper is killed, and a call meanwhile "
    "is answered",
    "[failure:235]") {
  const Ground ground;
  std::filesystem::create_directory(ground.at("kubelet") + "/plugins_registry");
  auto options = handed_over("pod-1", true);
  options.more.insert(options.more.end(), {"--kubelet-registration-path", "/csi.sock"});
  Agent agent(ground, options);
  REQUIRE(agent.answers());
  const std::string registration = ground.at("kubelet") + "/plugins_registry/rbd.csi.ceph.com-reg.sock";
  REQUIRE(eventually([&] { return std::filesystem::exists(registration); }));
  struct stat before{}, after{};
  REQUIRE(::stat(ground.at("csi.sock").c_str(), &before) == 0);
  const Fd watcher(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  REQUIRE(::inotify_add_watch(watcher.get(), (ground.at("kubelet") + "/plugins_registry").c_str(),
                              IN_CREATE | IN_DELETE | IN_MOVE) >= 0);
  for (std::size_t deaths = 1; deaths <= 2; ++deaths) {
    const int child = std::atoi(ground.read("state/lock").c_str());
    REQUIRE(parent_of("/proc", child) == agent.pid());
    REQUIRE(::kill(child, SIGKILL) == 0);
    // It waits in the socket.
    CHECK(agent.probe().find("\"OK\"") != std::string::npos);
    REQUIRE(eventually([&] { return times(ground, "agent.started") == deaths + 1; }));
  }
  REQUIRE(::stat(ground.at("csi.sock").c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  std::array<char, 4096> events;
  CHECK(::read(watcher.get(), events.data(), events.size()) < 0);
}

TEST_CASE("a restarted container of a pod in reserve stays in reserve", "[failure:151]") {
  const bool kept = GENERATE(false, true);
  const Ground ground;
  Agent second(ground, handed_over("pod-2", kept));
  REQUIRE(second.answers());
  {
    const Agent first(ground, handed_over("pod-1", kept));
    REQUIRE(eventually([&] { return holds_lock(ground, first); }));
    // If the next agent dies before that, pod-2's ends, and its container is restarted.
    REQUIRE(eventually([&] { return times(ground, "handover.in_reserve") == 1; }));
  }
  // An agent in reserve takes the lock now and then, to see whether it is free.
  REQUIRE(eventually([&] { return times(ground, "agent.started") == 3 && holds_lock(ground, second); }));
  Agent third(ground, handed_over("pod-3", kept));
  REQUIRE(eventually([&] { return holds_lock(ground, third); }));
  REQUIRE(third.answers());
  REQUIRE(eventually([&] { return times(ground, "handover.in_reserve") == 2; }));
  ::kill(second.pid(), SIGKILL);
  second.ended();
  const Agent again(ground, handed_over("pod-2", kept));
  REQUIRE(eventually([&] { return times(ground, "handover.in_reserve") == 3; }));
  CHECK(holds_lock(ground, third));
  CHECK(lives(again.pid()));
}

TEST_CASE("a pod that leaves the reserve counts as waiting there until its agent has the lock", "[failure:151]") {
  const Ground ground;
  const std::string note = ground.at("runtime/in-reserve");
  std::optional<SilentServer> serves(std::in_place, ground);
  std::ofstream(note) << "pod-2";
  std::ofstream(ground.at("log")).close();
  const Agent next(ground, handed_over("pod-2"));
  REQUIRE(eventually([&] { return next.log().find("handover.in_reserve") != std::string::npos; }));
  std::ofstream(ground.at("runtime/reserve-called")) << "pod-2";
  serves->answer();
  REQUIRE(eventually([&] { return next.log().find("handover.waits") != std::string::npos; }));
  CHECK(ground.read("runtime/in-reserve") == "pod-2");
  serves.reset();
  REQUIRE(eventually([&] { return holds_lock(ground, next); }));
  CHECK(eventually([&] { return !std::filesystem::exists(note); }));
}

TEST_CASE("an agent that is told to end gives its devices to the pod in reserve, and ends", "[failure:151]") {
  const bool kept = GENERATE(false, true);
  const Ground ground;
  const Agent first(ground, handed_over("pod-1", kept));
  REQUIRE(first.answers());
  Agent second(ground, handed_over("pod-2", kept));
  REQUIRE(eventually([&] { return holds_lock(ground, second); }));
  REQUIRE(second.answers());
  REQUIRE(eventually([&] { return first.log().find("handover.in_reserve") != std::string::npos; }));
  ::kill(second.pid(), SIGTERM);
  CHECK(second.ended() == 0);
  // It says so once the other one has ended.
  CHECK(eventually([&] { return holds_lock(ground, first); }));
  CHECK(first.answers());
  const auto log = first.log();
  CHECK(log.find("agent.handed_over", log.find("agent.handed_over") + 1) != std::string::npos);
}

TEST_CASE("an agent outside of a pod ends when it has handed over") {
  const Ground ground;
  Agent first(ground);
  REQUIRE(first.answers());
  const Agent second(ground, handed_over());
  CHECK(first.ended() == 0);
  CHECK(second.answers());
}

TEST_CASE("a refused agent in a pod waits for the end of the serving one", "[failure:151]") {
  const Ground ground;
  const test::Folder state;
  Agent first(ground, handed_over("pod-1"));
  REQUIRE(first.answers());
  auto options = handed_over("pod-2");
  options.state = state.path();
  const Agent second(ground, options);
  REQUIRE(eventually([&] { return first.log().find("handover.refused") != std::string::npos; }));
  CHECK(first.answers());
  ::kill(first.pid(), SIGTERM);
  CHECK(first.ended() == 0);
  CHECK(second.answers());
}

TEST_CASE("an agent that is told to end before its turn ends with 0, and the one that serves goes on") {
  const bool kept = GENERATE(false, true);
  const Ground ground;
  std::filesystem::create_directory(ground.at("other"));
  Agent first(ground, handed_over("pod-1", kept));
  REQUIRE(first.answers());
  auto options = handed_over("pod-2", kept);
  options.state = ground.at("other");
  Agent refused(ground, options);
  REQUIRE(eventually([&] { return first.log().find("handover.refused") != std::string::npos; }));
  ::kill(refused.pid(), SIGTERM);
  CHECK(refused.ended() == 0);
  CHECK(first.answers());
}

TEST_CASE("a pod is ready by its own agent only", "[failure:151]") {
  const Ground ground;
  const Agent agent(ground, handed_over("pod-1"));
  REQUIRE(agent.answers());
  CHECK(says(ground, "alive") == 0);
  CHECK_FALSE(alive_for(ground, "pod-2"));
  CHECK_THAT(ground.read("said"), ContainsSubstring("the agent of another pod serves (pod-1)"));
}

TEST_CASE("a pod between two agents is alive as long as its own process is, though nobody listens") {
  const bool kept = GENERATE(false, true);
  const Ground ground;
  Agent agent(ground, handed_over("pod-1", kept));
  REQUIRE(agent.answers());
  // As while it hands over.
  std::filesystem::remove(ground.at("runtime/admin.sock"));
  CHECK(says(ground, "alive --pod pod-1") == 0);
  CHECK(says(ground, "alive --pod pod-2") == 3);
  CHECK(says(ground, "alive") == 3);
  CHECK(says(ground, "alive --ready --pod pod-1") == 3);
  ::kill(agent.pid(), SIGKILL);
  agent.ended();
  CHECK(eventually([&] { return says(ground, "alive --pod pod-1") == 3; }));
}

TEST_CASE("corbd handover starts the next agent with the serving one's command line, and returns once it serves") {
  const bool kept = GENERATE(false, true);
  const Ground ground;
  Agent::Options options;
  if (kept) options.more = {"--keeper"};
  Agent first(ground, options);
  REQUIRE(first.answers());
  CHECK(says(ground, "handover --timeout 60") == 0);
  CHECK(first.ended() == 0);
  CHECK(first.probe().find("\"OK\"") != std::string::npos);
  const auto next = std::stoi(ground.read("state/lock"));
  CHECK_THAT(ground.read("said"), ContainsSubstring("agent " + std::to_string(next) + " serves, in the place of"));
  const auto words = read_file("/proc/" + std::to_string(next) + "/cmdline", 1 << 16);
  ::kill(kept ? parent_of("/proc", next) : next, SIGKILL);
  REQUIRE(words);
  CHECK(words->ends_with(std::string("--handover") + '\0'));
}

TEST_CASE("corbd handover fails if no agent serves or the next one ends, and a serving agent goes on",
          "[failure:151]") {
  const Ground ground;
  CHECK(says(ground, "handover") == 3);
  const Agent first(ground);
  REQUIRE(first.answers());
  // The next agent refuses to start: its state directory is a file.
  std::filesystem::rename(ground.at("state"), ground.at("other"));
  std::ofstream(ground.at("state")) << "no folder";
  CHECK(says(ground, "handover --timeout 60") == 1);
  CHECK_THAT(ground.read("said"), ContainsSubstring("the next agent "));
  CHECK(first.probe().find("\"OK\"") != std::string::npos);
}

TEST_CASE("systemd learns that an agent serves, and the next agent's pid before the old one ends", "[failure:151]") {
  const bool kept = GENERATE(false, true);
  const Ground ground;
  const std::string path = ground.at("notify");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const Fd manager(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(manager.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const timeval limit{30, 0};
  ::setsockopt(manager.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const auto heard = [&] {
    std::array<char, 4096> text;
    const auto bytes = ::recv(manager.get(), text.data(), text.size(), 0);
    return bytes < 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(bytes));
  };
  auto options = handed_over({}, kept);
  options.prepare = [&] { ::setenv("NOTIFY_SOCKET", path.c_str(), 1); };
  Agent first(ground, options);
  CHECK(heard() == "READY=1");
  const Agent second(ground, options);
  CHECK(heard() == "MAINPID=" + std::to_string(second.pid()));
  CHECK(lives(first.pid()));
  // Nobody closes the barrier here, so that a second passes.
  CHECK(heard() == "BARRIER=1");
  CHECK(heard() == "READY=1");
  CHECK(first.ended() == 0);
}
