// The agent's real process, with neither a cluster nor a kernel's nbd behind it.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/places.hpp"

namespace corbd::test {

/// Where agents live: folders on tmpfs, and a config.json.
class Ground {
 public:
  Ground() {
    for (const char* name : {"config", "kubelet", "state", "runtime"}) std::filesystem::create_directory(at(name));
    std::ofstream(at("config") + "/config.json") << R"([{"clusterID":"lab","monitors":["127.0.0.1:1"]}])";
  }
  ~Ground() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;
  std::string at(const std::string& name) const { return root_ + "/" + name; }
  std::string read(const std::string& name) const { return read_file(at(name), 1 << 20).value(); }

 private:
  static std::string made() {
    std::string path = "/dev/shm/corbd-test-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    return path;
  }
  const std::string root_ = made();
};

struct AgentOptions {
  std::string socket = "csi.sock";
  std::string state;              ///< the ground's, unless given
  std::string kubelet;            ///< the ground's, unless given
  std::vector<std::string> more;  ///< arguments
  std::function<void()> prepare;  ///< in the child, before it becomes the agent; its log goes to the ground's "log"
                                  ///< unless it says otherwise
};

class Agent {
 public:
  using Options = AgentOptions;
  explicit Agent(const Ground& ground, const Options& options = {})
      : ground_(ground), socket_(ground.at(options.socket)) {
    std::vector<std::string> words{corbd_program(), "run",
                                   "--nodeid",      "node-1",
                                   "--endpoint",    "unix://" + socket_,
                                   "--drivername",  "rbd.csi.ceph.com",
                                   "--kubelet-dir", options.kubelet.empty() ? ground.at("kubelet") : options.kubelet,
                                   "--state-dir",   options.state.empty() ? ground.at("state") : options.state,
                                   "--runtime-dir", ground.at("runtime"),
                                   "--config-dir",  ground.at("config")};
    words.insert(words.end(), options.more.begin(), options.more.end());
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string log = ground.at("log");
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
    if (options.prepare) options.prepare();
    ::execv(corbd_program().c_str(), argv.data());
    ::_exit(126);
  }
  ~Agent() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  pid_t pid() const { return pid_; }
  std::string log() const { return ground_.read("log"); }
  /// What `corbd csi probe` prints.
  std::string probe() const {
    const std::string command = corbd_program() + " csi probe --timeout 5 --endpoint unix://" + socket_ + " 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    std::string said;
    for (int byte = ::fgetc(pipe); byte != EOF; byte = ::fgetc(pipe)) said.push_back(static_cast<char>(byte));
    ::pclose(pipe);
    return said;
  }
  /// Whether it answers within a time that is long enough for any machine.
  bool answers() const {
    for (int tries = 0; tries < 600; ++tries) {
      if (std::filesystem::exists(socket_) && probe().find("\"OK\"") != std::string::npos) return true;
      siginfo_t end{};
      if (::waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid != 0)
        return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
  /// Its exit code, once it has ended.
  int ended() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  const Ground& ground_;
  const std::string socket_;
  pid_t pid_ = -1;
};

}  // namespace corbd::test
