// `corbd-probe`: what kubelet hears of an agent's pod, and what it costs the node.
#include <atomic>

#include "agent.hpp"
#include "corbd/core/process.hpp"
#include "support/places.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::Agent;
using test::Ground;

namespace {

struct Ended {
  int code = -1;
  long cpu_us = 0;  ///< user and system
};

Ended run(const std::vector<std::string>& words, const std::string& said) {
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(::open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(126);
  }
  int status = 0;
  rusage used{};
  ::wait4(pid, &status, 0, &used);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1'000'000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec};
}

int probes(const Ground& ground, const std::string& what, const std::string& pod,
           const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{test::probe_program(), what, "--runtime-dir", ground.at("runtime"), "--pod", pod};
  words.insert(words.end(), more.begin(), more.end());
  return run(words, ground.at("said")).code;
}

/// Its agent serves before this returns.
Agent::Options in_pod(const std::string& pod, bool kept = false) {
  Agent::Options options;
  options.more = {"--handover", "--pod", pod};
  if (kept) options.more.emplace_back("--keeper");
  return options;
}

/// This machine may have no nbd, which an agent needs to be ready.
const std::vector<std::string> kPatient{"--wait", "60"};

bool eventually(const std::function<bool()>& is_so) {
  for (int tries = 0; tries < 600; ++tries) {
    if (is_so()) return true;
    std::this_thread::sleep_for(50ms);
  }
  return false;
}

std::string pulse(const Ground& ground, const std::string& pod) { return ground.read("runtime/pods/" + pod); }

}  // namespace

TEST_CASE("a pod is alive by its own agent only, from its start to its end", "[failure:171]") {
  const bool kept = GENERATE(false, true);
  const Ground ground;
  CHECK(probes(ground, "alive", "pod-1") == 1);
  Agent agent(ground, in_pod("pod-1", kept));
  CHECK(probes(ground, "alive", "pod-1", kPatient) == 0);
  CHECK(probes(ground, "alive", "pod-2") == 1);
  ::kill(agent.pid(), SIGKILL);
  agent.ended();
  CHECK(eventually([&] { return probes(ground, "alive", "pod-1") == 1; }));
  CHECK_THAT(ground.read("said"), ContainsSubstring("no agent of this pod runs"));
}

TEST_CASE("an agent without processor time counts as alive, and as hung after --hung-after",
          "[failure:170][failure:171]") {
  const Ground ground;
  const Agent agent(ground, in_pod("pod-1"));
  REQUIRE(agent.answers());
  REQUIRE(eventually([&] { return !pulse(ground, "pod-1").empty(); }));
  ::kill(agent.pid(), SIGSTOP);
  CHECK(probes(ground, "alive", "pod-1") == 0);
  CHECK(eventually([&] { return probes(ground, "alive", "pod-1", {"--hung-after", "1"}) == 1; }));
  CHECK_THAT(ground.read("said"), ContainsSubstring("the agent's control thread has not run for"));
  CHECK(probes(ground, "ready", "pod-1", {"--hung-after", "1"}) == 1);
  ::kill(agent.pid(), SIGCONT);
  CHECK(probes(ground, "alive", "pod-1", {"--hung-after", "10", "--wait", "60"}) == 0);
}

TEST_CASE("an agent that hangs before its control thread has begun is hung") {
  const Ground ground;
  auto options = in_pod("pod-1");
  options.more.insert(options.more.end(), {"--failpoint", "agent.starts=hang"});
  const Agent agent(ground, options);
  REQUIRE(probes(ground, "alive", "pod-1", kPatient) == 0);
  CHECK(eventually([&] { return probes(ground, "alive", "pod-1", {"--hung-after", "1"}) == 1; }));
  CHECK_THAT(ground.read("said"), ContainsSubstring("the agent's control thread has not run for"));
}

TEST_CASE("a pod whose agent is dead is alive while its keeper pauses, and is not ready", "[failure:171]") {
  const Ground ground;
  Agent agent(ground, in_pod("pod-1", true));
  REQUIRE(agent.answers());
  REQUIRE(eventually([&] { return !pulse(ground, "pod-1").empty(); }));
  // Each pause is longer than the one before.
  for (int deaths = 1; deaths <= 5; ++deaths) {
    REQUIRE(agent.answers());
    const int serves = std::atoi(ground.read("state/lock").c_str());
    ::kill(serves, SIGKILL);
    REQUIRE(eventually([&] { return ::kill(serves, 0) != 0; }));
  }
  // 4 s: nobody lives beside the keeper, and what the dead one wrote is old.
  CHECK(probes(ground, "alive", "pod-1", {"--hung-after", "0"}) == 0);
  CHECK(probes(ground, "ready", "pod-1") == 1);
  CHECK_THAT(ground.read("said"), ContainsSubstring("the agent has died"));
}

TEST_CASE("over a handover both pods are alive, and the one in reserve is ready", "[failure:170]") {
  const bool kept = GENERATE(false, true);
  const Ground ground;
  Agent first(ground, in_pod("pod-1", kept));
  REQUIRE(first.answers());
  Agent second(ground, in_pod("pod-2", kept));
  const auto serves = [&] {
    const int holder = std::atoi(ground.read("state/lock").c_str());
    return holder == second.pid() || parent_of("/proc", holder) == second.pid();
  };
  REQUIRE(probes(ground, "alive", "pod-2", kPatient) == 0);
  while (!serves()) {
    CHECK(probes(ground, "alive", "pod-1") == 0);
    CHECK(probes(ground, "alive", "pod-2") == 0);
  }
  CHECK(probes(ground, "ready", "pod-1", kPatient) == 0);
  CHECK(probes(ground, "alive", "pod-1") == 0);
  REQUIRE(second.answers());
}

TEST_CASE("a pod whose agent waits for the one that serves is alive, and not ready", "[failure:170]") {
  const Ground ground;
  const test::Folder state;
  const Agent first(ground, in_pod("pod-1"));
  REQUIRE(first.answers());
  auto options = in_pod("pod-2");
  // So it is refused, and waits.
  options.state = state.path();
  const Agent second(ground, options);
  REQUIRE(eventually([&] { return first.log().find("handover.refused") != std::string::npos; }));
  CHECK(probes(ground, "alive", "pod-2") == 0);
  CHECK(probes(ground, "ready", "pod-2") == 1);
  CHECK_THAT(ground.read("said"), ContainsSubstring("this pod's agent does not serve yet"));
}

TEST_CASE("a probe that waits has said why before it is killed") {
  const Ground ground;
  std::ofstream(ground.at("said")).close();
  const pid_t probe = ::fork();
  if (probe == 0) {
    ::dup2(::open(ground.at("said").c_str(), O_WRONLY | O_TRUNC), STDERR_FILENO);
    ::execl(test::probe_program().c_str(), "corbd-probe", "ready", "--runtime-dir", ground.at("runtime").c_str(),
            "--pod", "pod-1", "--wait", "600", nullptr);
    ::_exit(126);
  }
  CHECK(eventually([&] { return ground.read("said").find("no agent of this pod runs") != std::string::npos; }));
  ::kill(probe, SIGKILL);
  ::waitpid(probe, nullptr, 0);
}

TEST_CASE("a pod is ready as /readyz says, with its reasons") {
  const Ground ground;
  const Agent agent(ground, in_pod("pod-1"));
  REQUIRE(agent.answers());
  // "corbd alive: <component>: <text>", one line each; nothing where the agent is ready.
  const auto same = [&] {
    const int asked =
        run({test::corbd_program(), "alive", "--ready", "--pod", "pod-1", "--runtime-dir", ground.at("runtime")},
            ground.at("answer"))
            .code;
    const std::string answer = ground.read("answer");
    const auto begin = answer.find(": ");
    const auto reason =
        begin == std::string::npos ? "" : answer.substr(begin + 2, answer.find(':', begin + 2) - begin - 2);
    return probes(ground, "ready", "pod-1") == asked && ground.read("said").find(reason) != std::string::npos;
  };
  CHECK(eventually(same));
}

TEST_CASE("a probe needs at most a tenth of the processor time of the command that asks the agent", "[failure:170]") {
  const Ground ground;
  const Agent agent(ground, in_pod("pod-1"));
  REQUIRE(agent.answers());
  long probe = 0, command = 0;
  for (int times = 0; times < 5; ++times) {
    const auto one = run({test::probe_program(), "alive", "--pod", "pod-1", "--runtime-dir", ground.at("runtime")},
                         ground.at("said"));
    const auto other = run({test::corbd_program(), "alive", "--runtime-dir", ground.at("runtime")}, ground.at("said"));
    CHECK(one.code == 0);
    CHECK(other.code == 0);
    probe += one.cpu_us;
    command += other.cpu_us;
  }
  INFO("corbd-probe " << probe / 5 << " us, corbd alive " << command / 5 << " us");
  CHECK(probe * 10 <= command);
}

TEST_CASE("probes answer while every processor is busy", "[failure:170]") {
  const Ground ground;
  const Agent agent(ground, in_pod("pod-1"));
  REQUIRE(agent.answers());
  REQUIRE(eventually([&] { return !pulse(ground, "pod-1").empty(); }));
  std::atomic<bool> go_on{true};
  std::vector<std::thread> busy;
  for (unsigned i = 0; i < 4 * std::max(1u, std::thread::hardware_concurrency()); ++i)
    busy.emplace_back([&] {
      while (go_on) {
      }
    });
  for (int times = 0; times < 20; ++times) CHECK(probes(ground, "alive", "pod-1") == 0);
  go_on = false;
  for (auto& one : busy) one.join();
}

TEST_CASE("a probe without a pod, or with an unknown argument, ends with 2") {
  const Ground ground;
  CHECK(probes(ground, "alive", "") == 2);
  CHECK_THAT(ground.read("said"), ContainsSubstring("POD_UID"));
  CHECK(probes(ground, "alive", "../pods/pod-1") == 2);
  CHECK(probes(ground, "lively", "pod-1") == 2);
  CHECK(probes(ground, "alive", "pod-1", {"--wait", "soon"}) == 2);
}
