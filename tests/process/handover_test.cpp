// Agents after each other on one state folder, as two pods have them. No device is there to be
// given.
#include "agent.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::Agent;
using test::Ground;

namespace {

Agent::Options handed_over(const std::string& pod = {}) {
  Agent::Options options;
  options.more = {"--handover"};
  if (!pod.empty()) options.more.insert(options.more.end(), {"--pod", pod});
  return options;
}

/// The exit code of a command of corbd about the ground's agent.
int says(const Ground& ground, const std::string& command) {
  const std::string line = std::string(CORBD) + " " + command + " --runtime-dir " + ground.at("runtime") + " >>" +
                           ground.at("said") + " 2>&1";
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool soon(const std::function<bool()>& is_so) {
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

bool holds_lock(const Ground& ground, const Agent& agent) {
  return ground.read("state/lock") == std::to_string(agent.pid()) + "\n";
}

}  // namespace

TEST_CASE("an agent in a pod that has handed over stays in reserve, is ready, and ends at once when its pod does") {
  const Ground ground;
  Agent first(ground, handed_over("pod-1"));
  REQUIRE(first.answers());
  Agent second(ground, handed_over("pod-2"));
  REQUIRE(soon([&] { return holds_lock(ground, second); }));
  REQUIRE(second.answers());
  CHECK(lives(first.pid()));
  CHECK(alive_for(ground, "pod-1"));
  REQUIRE(soon([&] { return first.log().find("handover.in_reserve") != std::string::npos; }));
  ::kill(first.pid(), SIGTERM);
  CHECK(first.ended() == 0);
  CHECK(second.answers());
  CHECK(holds_lock(ground, second));
}

TEST_CASE("an agent in reserve serves once nobody else does, and the pod of the one that died asks it again") {
  const Ground ground;
  Agent first(ground, handed_over("pod-1"));
  REQUIRE(first.answers());
  {
    Agent second(ground, handed_over("pod-2"));
    REQUIRE(soon([&] { return holds_lock(ground, second); }));
    REQUIRE(second.answers());
  }
  REQUIRE(soon([&] { return holds_lock(ground, first); }));
  CHECK(first.answers());
  Agent again(ground, handed_over("pod-2"));
  REQUIRE(soon([&] { return holds_lock(ground, again); }));
  CHECK(again.answers());
  CHECK(lives(first.pid()));
}

TEST_CASE("a container of a pod in reserve that kubelet starts again stays in reserve") {
  const Ground ground;
  Agent second(ground, handed_over("pod-2"));
  {
    Agent first(ground, handed_over("pod-1"));
    REQUIRE(first.answers());
    REQUIRE(soon([&] { return holds_lock(ground, first); }));
    // pod-2 is in reserve now.
  }
  REQUIRE(soon([&] { return holds_lock(ground, second); }));
  Agent third(ground, handed_over("pod-3"));
  REQUIRE(soon([&] { return holds_lock(ground, third); }));
  REQUIRE(third.answers());
  ::kill(second.pid(), SIGKILL);
  second.ended();
  const Agent again(ground, handed_over("pod-2"));
  REQUIRE(soon([&] {
    const auto log = ground.read("log");
    return log.find("handover.in_reserve", log.find("handover.in_reserve") + 1) != std::string::npos;
  }));
  CHECK(holds_lock(ground, third));
  CHECK(lives(again.pid()));
}

TEST_CASE("an agent that is told to end gives its devices to the pod in reserve, and ends") {
  const Ground ground;
  const Agent first(ground, handed_over("pod-1"));
  REQUIRE(first.answers());
  Agent second(ground, handed_over("pod-2"));
  REQUIRE(soon([&] { return holds_lock(ground, second); }));
  REQUIRE(second.answers());
  REQUIRE(soon([&] { return first.log().find("handover.in_reserve") != std::string::npos; }));
  ::kill(second.pid(), SIGTERM);
  CHECK(second.ended() == 0);
  CHECK(holds_lock(ground, first));
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

TEST_CASE("an agent in a pod that is refused waits for the end of the one that serves") {
  const Ground ground;
  const test::Folder state;
  Agent first(ground, handed_over("pod-1"));
  REQUIRE(first.answers());
  auto options = handed_over("pod-2");
  options.state = state.path();
  const Agent second(ground, options);
  REQUIRE(soon([&] { return first.log().find("handover.refused") != std::string::npos; }));
  CHECK(first.answers());
  ::kill(first.pid(), SIGTERM);
  CHECK(first.ended() == 0);
  CHECK(second.answers());
}

TEST_CASE("a pod is ready by its own agent only") {
  const Ground ground;
  const Agent agent(ground, handed_over("pod-1"));
  REQUIRE(agent.answers());
  CHECK(says(ground, "alive") == 0);
  CHECK_FALSE(alive_for(ground, "pod-2"));
  CHECK_THAT(ground.read("said"), ContainsSubstring("the agent of another pod serves (pod-1)"));
}
