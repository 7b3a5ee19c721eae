// The real program under ceph-csi's name, with the arguments of its DaemonSet.
#include "agent.hpp"

#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "csiaddons/fence.grpc.pb.h"
#include "csiaddons/identity.grpc.pb.h"
#include "support/places.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::Ground;
namespace fs = std::filesystem;

namespace {

/// A process that is called cephcsi.
class CephCsi {
 public:
  CephCsi(const Ground& ground, std::vector<std::string> words) : log_(ground.at("log")) {
    const std::string program = ground.at("cephcsi");
    if (!fs::exists(program)) fs::create_symlink(test::corbd_program(), program);
    words.insert(words.begin(), program);
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::dup2(::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
    ::setenv("POD_IP", "127.0.0.1", 1);
    ::execv(program.c_str(), argv.data());
    ::_exit(126);
  }
  ~CephCsi() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  CephCsi(const CephCsi&) = delete;
  CephCsi& operator=(const CephCsi&) = delete;
  int ended() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void stop() { ::kill(pid_, SIGTERM); }
  std::string log() const { return read_file(log_, 1 << 20).value(); }

 private:
  const std::string log_;
  pid_t pid_ = -1;
};

std::string said_by(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string said;
  for (int byte = ::fgetc(pipe); byte != EOF; byte = ::fgetc(pipe)) said.push_back(static_cast<char>(byte));
  ::pclose(pipe);
  return said;
}

bool within_a_minute(const std::function<bool()>& true_now) {
  for (int tries = 0; tries < 1200; ++tries, std::this_thread::sleep_for(50ms))
    if (true_now()) return true;
  return false;
}

bool answers(const std::string& socket) {
  return within_a_minute([&] {
    return fs::exists(socket) &&
           said_by(test::corbd_program() + " csi probe --timeout 5 --endpoint unix://" + socket + " 2>&1")
                   .find("\"OK\"") != std::string::npos;
  });
}

std::uint16_t free_port() {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return ntohs(address.sin_port);
}

std::string page(std::uint16_t port, const std::string& path) {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return {};
  std::string answer;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = ::recv(fd.get(), buffer.data(), buffer.size(), 0)) > 0;)
    answer.append(buffer.data(), static_cast<std::size_t>(got));
  return answer;
}

/// csi-rbdplugin.yaml's, on the ground.
std::vector<std::string> daemon_set(const Ground& ground) {
  return {"--nodeid=node-1",
          "--pluginpath=" + ground.at("kubelet") + "/plugins",
          "--stagingpath=" + ground.at("kubelet") + "/plugins/kubernetes.io/csi/",
          "--type=rbd",
          "--nodeserver=true",
          "--endpoint=unix://" + ground.at("csi.sock"),
          "--csi-addons-endpoint=unix://" + ground.at("csi-addons.sock"),
          "--v=5",
          "--drivername=rbd.csi.ceph.com",
          "--enableprofiling=false",
          "--runtime-dir=" + ground.at("runtime")};
}

}  // namespace

TEST_CASE(
    "an agent called cephcsi with its DaemonSet's arguments serves both sockets and keeps its state beside the "
    "driver's") {
  const Ground ground;
  CephCsi agent(ground, daemon_set(ground));
  REQUIRE(answers(ground.at("csi.sock")));
  CHECK(within_a_minute([&] { return fs::exists(ground.at("csi-addons.sock")); }));
  CHECK(fs::exists(ground.at("kubelet") + "/plugins/rbd.csi.ceph.com/corbd/lock"));
  CHECK_THAT(agent.log(), ContainsSubstring("agent.flag_ignored") && ContainsSubstring("stagingpath"));
  agent.stop();
  CHECK(agent.ended() == 0);
}

TEST_CASE("an agent in place of ceph-csi's controller serves only fencing, on CSI-Addons' socket") {
  const Ground ground;
  CephCsi fencing(ground, {"--nodeid=node-1", "--type=rbd", "--controllerserver=true", "--fencing-only",
                           "--csi-addons-endpoint=unix://" + ground.at("csi-addons.sock"),
                           "--runtime-dir=" + ground.at("runtime")});
  REQUIRE(within_a_minute([&] { return fs::exists(ground.at("csi-addons.sock")); }));
  const auto channel =
      grpc::CreateChannel("unix://" + ground.at("csi-addons.sock"), grpc::InsecureChannelCredentials());
  identity::GetCapabilitiesResponse capabilities;
  grpc::ClientContext asked, asked_to_fence;
  asked.set_wait_for_ready(true);
  REQUIRE(identity::Identity::NewStub(channel)->GetCapabilities(&asked, {}, &capabilities).ok());
  CHECK(capabilities.capabilities(0).service().type() == identity::Capability::Service::CONTROLLER_SERVICE);
  ::fence::FenceClusterNetworkRequest request;
  request.add_cidrs()->set_cidr("10.0.0.7/32");
  ::fence::FenceClusterNetworkResponse response;
  const auto refused =
      ::fence::FenceController::NewStub(channel)->FenceClusterNetwork(&asked_to_fence, request, &response);
  CHECK(refused.error_code() == grpc::INVALID_ARGUMENT);
  CHECK_THAT(refused.error_message(), ContainsSubstring("clusterID"));
  CHECK_FALSE(fs::exists(ground.at("csi.sock")));
  fencing.stop();
  CHECK(fencing.ended() == 0);
}

TEST_CASE("a program called cephcsi with liveness arguments reports whether the socket answers") {
  const Ground ground;
  const std::string port = std::to_string(free_port());
  const CephCsi watch(ground, {"--type=liveness", "--endpoint=unix://" + ground.at("csi.sock"), "--metricsport=" + port,
                               "--metricspath=/metrics", "--polltime=50ms", "--timeout=3s"});
  const auto gauge = [&](const char* value) {
    return within_a_minute([&] {
      return page(static_cast<std::uint16_t>(std::stoi(port)), "/metrics")
                 .find(std::string("\ncsi_liveness ") + value) != std::string::npos;
    });
  };
  CHECK(gauge("0"));
  {
    const CephCsi agent(ground, daemon_set(ground));
    CHECK(gauge("1"));
  }
  CHECK(gauge("0"));
}

TEST_CASE("a program called cephcsi ends with a reason on unsupported or invalid arguments") {
  struct Case {
    std::vector<std::string> more;
    int code;
    std::string says;
  };
  const auto [more, code, says] = GENERATE(values<Case>({{{"--controllerserver=true"}, 1, "ceph-csi's image"},
                                                         {{"--type=cephfs"}, 1, "ceph-csi's image"},
                                                         {{"--nodeidd=x"}, 2, "did you mean --nodeid?"},
                                                         {{"--domainlabels=a/zone,b/zone"}, 1, "named twice"}}));
  const Ground ground;
  auto words = daemon_set(ground);
  words.insert(words.end(), more.begin(), more.end());
  CephCsi agent(ground, words);
  CHECK(agent.ended() == code);
  CHECK_THAT(agent.log(), ContainsSubstring(says));
}

TEST_CASE("domain labels that are given by hand are the node's topology") {
  const Ground ground;
  auto words = daemon_set(ground);
  words.insert(words.end(), {"--domainlabels=a/zone", "--topology=a/zone=z1"});
  const CephCsi agent(ground, words);
  CHECK(answers(ground.at("csi.sock")));
}
