// The helper process of the tests: the work of the rooms host and manager, and operations that misbehave on request.
// With `agent BUSY_FILE GATE` it plays an agent instead, whose one helper holds BUSY_FILE until GATE exists.
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "corbd/host/helpers.hpp"
#include "corbd/manager/node.hpp"

namespace {

using namespace corbd;
namespace json = boost::json;

std::string text(const json::object& request, std::string_view key) { return std::string(request.at(key).as_string()); }

void say(const std::string& path, const std::string& line) {
  std::ofstream(path + ".tmp") << line << std::endl;
  std::rename((path + ".tmp").c_str(), path.c_str());
}

// The wait has a limit, and ends when the test's folder is gone: a failed test leaves nothing behind for long.
void wait_for(const std::string& gate) {
  const std::string folder = gate.substr(0, gate.rfind('/'));
  for (int i = 0; i < 6000; ++i) {
    if (::access(gate.c_str(), F_OK) == 0 || ::access(folder.c_str(), F_OK) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

result<json::object> hold(const json::object& request) {
  say(text(request, "started"), std::to_string(::getpid()));
  wait_for(text(request, "gate"));
  return json::object{{"held", true}};
}

// Starts a program as mkfs is started, and waits for it.
result<json::object> hold_with_tool(const json::object& request) {
  const std::string gate = text(request, "gate");
  const std::string wait =
      "echo $$ > " + gate + ".tool; n=0; while [ ! -e " + gate + " ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done";
  say(text(request, "started"), std::to_string(::getpid()));
  return json::object{{"code", std::system(wait.c_str())}};
}

result<json::object> list_descriptors(const json::object&) {
  const std::string listing = "/proc/" + std::to_string(::getpid()) + "/fd";
  json::array all;
  for (int fd = 0; fd < 1024; ++fd)
    if (::access((listing + "/" + std::to_string(fd)).c_str(), F_OK) == 0) all.emplace_back(fd);
  return json::object{{"fds", all}, {"pid", ::getpid()}, {"sid", ::getsid(0)}};
}

result<json::object> test_work(const json::object& request) {
  const std::string op = text(request, "op");
  if (op == "test_echo") return json::object{{"echo", request.at("value")}, {"pid", ::getpid()}};
  if (op == "test_fail") return Error{errc::not_empty, "as asked for"};
  if (op == "test_throw") throw std::runtime_error("as asked for");
  if (op == "test_long") return json::object{{"long", std::string(1 << 20, 'x')}};
  if (op == "test_crash") ::raise(SIGKILL);
  if (op == "test_exit") ::_exit(3);
  if (op == "test_hold") return hold(request);
  if (op == "test_tool") return hold_with_tool(request);
  if (op == "test_fds") return list_descriptors(request);
  return helper::work(request, {host::helper_operations(), manager::helper_operations()});
}

int play_agent(const std::string& busy_file, const std::string& gate) {
  asio::io_context io;
  const auto clock = make_real_clock(io.get_executor());
  HelperPool::Config config;
  HelperPool pool(io.get_executor(), *clock, config);
  HelperRequest request;
  request.what = "hold";
  request.body = {{"op", "test_hold"}, {"started", gate + ".started"}, {"gate", gate}};
  request.owner.busy_file = busy_file;
  asio::co_spawn(io, pool.call(std::move(request), {}), asio::detached);
  io.run_for(std::chrono::seconds(60));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  if (mode == "helper") return serve_helper(3, test_work);
  if (mode == "agent" && count == 4) return play_agent(arguments[2], arguments[3]);
  return 2;
}
