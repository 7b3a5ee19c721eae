// What `corbd status`, /readyz and the agent's files say of one node, each held against the others.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/json/parse.hpp>
#include <sstream>

#include "agent.hpp"
#include "pluginregistration/registration.grpc.pb.h"
#include "support/places.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::Agent;
using test::Ground;
namespace json = boost::json;

namespace {

struct Ended {
  int code = -1;
  std::string out;
};

/// A command that finds the agent by its variable. What it says on stderr is behind what it says on stdout.
Ended corbd_says(const Ground& ground, const std::string& words) {
  const std::string command =
      "CORBD_RUNTIME_DIR=" + ground.at("runtime") + " " + test::corbd_program() + " " + words + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  Ended ended;
  for (int byte = ::fgetc(pipe); byte != EOF; byte = ::fgetc(pipe)) ended.out.push_back(static_cast<char>(byte));
  const int status = ::pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

std::uint16_t unused_port() {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto address = loopback(0);
  socklen_t length = sizeof address;
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return ntohs(address.sin_port);
}

/// The answer of GET, head and body; empty while nobody answers.
std::string http_page(std::uint16_t port, const std::string& path) {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = loopback(port);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: corbd\r\nConnection: close\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) return {};
  std::string answer;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = ::recv(fd.get(), buffer.data(), buffer.size(), 0)) > 0;)
    answer.append(buffer.data(), static_cast<std::size_t>(got));
  return answer;
}

/// What /readyz must say: 200, or 503 with a line for each component that keeps the agent from serving.
std::string readyz_by(const json::value& status) {
  std::string lines;
  for (const auto& component : status.at("components").as_array())
    if (component.at("keeps_from_serving").as_bool())
      lines +=
          std::string(component.at("name").as_string()) + ": " + std::string(component.at("text").as_string()) + "\n";
  return lines.empty() ? "ok\n" : lines;
}

std::string verdict_of_component(const json::value& status, const std::string& name) {
  for (const auto& component : status.at("components").as_array())
    if (component.at("name").as_string() == name) return std::string(component.at("verdict").as_string());
  return "no such component";
}

void kubelet_says(const std::string& socket, bool registered) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + 30s);
  pluginregistration::RegistrationStatus status;
  status.set_plugin_registered(registered);
  status.set_error("no");
  pluginregistration::RegistrationStatusResponse response;
  const auto channel = grpc::CreateChannel("unix://" + socket, grpc::InsecureChannelCredentials());
  REQUIRE(
      pluginregistration::Registration::NewStub(channel)->NotifyRegistrationStatus(&context, status, &response).ok());
}

}  // namespace

TEST_CASE("corbd status and /readyz say the same, whatever kubelet says and wherever the disk is") {
  const Ground ground;
  const std::string registry = ground.at("kubelet") + "/plugins_registry";
  std::filesystem::create_directory(registry);
  const auto port = unused_port();
  Agent::Options options;
  options.more = {"--metricsport", std::to_string(port), "--kubelet-registration-path", "/csi.sock"};
  const Agent agent(ground, options);
  REQUIRE(agent.answers());
  // A change of the node between the two looks is no disagreement: then they are taken again.
  const auto agree = [&](const std::string& component, const std::string& verdict) {
    std::string one, other;
    for (int tries = 0; tries < 600; ++tries, std::this_thread::sleep_for(100ms)) {
      const auto said = corbd_says(ground, "status -o json");
      const std::string http = http_page(port, "/readyz");
      const auto body = http.find("\r\n\r\n");
      if (body == std::string::npos) continue;
      const auto status = json::parse(said.out);
      one = readyz_by(status);
      other = http.substr(body + 4);
      CHECK(status.at("ready").as_bool() == (one == "ok\n"));
      CHECK((said.code == 0) == (status.at("verdict").as_string() == "ok"));
      if (one != "ok\n") CHECK(said.code != 0);
      CHECK(http.starts_with("HTTP/1.1 200") == (other == "ok\n"));
      if (one == other && verdict_of_component(status, component) == verdict) return true;
    }
    UNSCOPED_INFO("status: " << one << "readyz: " << other);
    return false;
  };
  CHECK(agree("kubelet", "warning"));
  const std::string socket = registry + "/rbd.csi.ceph.com-reg.sock";
  kubelet_says(socket, false);
  CHECK(agree("kubelet", "critical"));
  CHECK(agree("state-dir", "ok"));
  kubelet_says(socket, true);
  CHECK(agree("kubelet", "ok"));
  std::filesystem::remove_all(ground.at("state"));
  CHECK(agree("state-dir", "critical"));
}

TEST_CASE("a cordon and its undoing survive a kill of the agent") {
  const Ground ground;
  const auto drained = [&](const Agent& agent) {
    REQUIRE(agent.answers());
    return json::parse(corbd_says(ground, "status -o json").out).at("draining").as_bool();
  };
  {
    const Agent agent(ground);
    CHECK_FALSE(drained(agent));
    CHECK(corbd_says(ground, "drain").code == 0);
    CHECK(drained(agent));
  }
  {
    const Agent agent(ground);
    CHECK(drained(agent));
    CHECK_THAT(agent.log(), ContainsSubstring("\"agent.cordoned\""));
    CHECK_THAT(corbd_says(ground, "status").out, ContainsSubstring("drained since 20"));
    CHECK(corbd_says(ground, "drain --undo").code == 0);
    CHECK_FALSE(drained(agent));
  }
  const Agent agent(ground);
  CHECK_FALSE(drained(agent));
}

TEST_CASE("bash completes every command, and every flag that a command's help shows") {
  const Ground ground;
  const std::string script = corbd_says(ground, "describe bash").out;
  const auto table = [&](const std::string& name, const std::string& path) {
    const std::string key = "_corbd_" + name + "['/" + path + "']='";
    const auto at = script.find(key);
    if (at == std::string::npos) return std::string("none");
    return " " + script.substr(at + key.size(), script.find("'\n", at) - at - key.size()) + " ";
  };
  std::vector<std::string> commands;
  std::istringstream help(corbd_says(ground, "--help").out.append("\n"));
  bool below = false;
  for (std::string line; std::getline(help, line);) {
    if (below && line.starts_with("  ") && line.size() > 2 && line[2] != ' ')
      commands.push_back(line.substr(2, line.find(' ', 2) - 2));
    // CLI11 2.5 writes headings in capitals.
    below = below || line == "Subcommands:" || line == "SUBCOMMANDS:";
  }
  REQUIRE(commands.size() >= 15);
  for (const auto& command : commands) {
    INFO(command);
    CHECK_THAT(table("commands", ""), ContainsSubstring(" " + command + " "));
    std::istringstream flags(corbd_says(ground, command + " --help").out);
    for (std::string line; std::getline(flags, line);) {
      const auto flag = line.find("--");
      if (!line.starts_with("  ") || line.find_first_not_of(' ') != line.find('-') || flag == std::string::npos)
        continue;
      const std::string name = line.substr(flag, line.find_first_of(" ,", flag) - flag);
      CHECK_THAT(table("flags", command), ContainsSubstring(" " + name + " "));
    }
  }
}

TEST_CASE("an invalid command line ends with 64, and the error names the mistake") {
  const Ground ground;
  for (const auto& [words, meant] :
       std::vector<std::pair<std::string, std::string>>{{"statsu", "did you mean 'status'?"},
                                                        {"status --outptu json", "did you mean '--output'?"},
                                                        {"status -o yaml", "--output"},
                                                        {"run --nodeid=", "--nodeid"},
                                                        {"mount rbd/db", "needs an image and a folder"},
                                                        {"", "--help"}}) {
    const auto ended = corbd_says(ground, words);
    INFO(words);
    CHECK(ended.code == 64);
    CHECK_THAT(ended.out, ContainsSubstring(meant));
  }
  CHECK(corbd_says(ground, "status --help").code == 0);
  CHECK(corbd_says(ground, "--version").code == 0);
  CHECK(corbd_says(ground, "status").code == 3);
}
