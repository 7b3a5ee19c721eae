#include "kube.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "corbd/core/log.hpp"
#include "corbd/kube/own_node.hpp"
#include "support/api_server.hpp"

namespace corbd::bench {
namespace {

using test::ApiServer;
using Steady = std::chrono::steady_clock;

/// As large as the Node of a machine with some images and volumes.
std::string node(int version, const std::string& name = "node-1") {
  std::string images;
  for (int i = 0; i < 40; ++i)
    images += (i == 0 ? "" : ",") + ("{\"names\":[\"registry.example/project/image-" + std::to_string(i) +
                                     "@sha256:" + std::string(64, 'a') + "\"]}");
  return R"({"metadata":{"name":")" + name + R"(","resourceVersion":")" + std::to_string(version) +
         R"(","labels":{"version":")" + std::to_string(version) + R"("}},"status":{"images":[)" + images + "]}}";
}

double resident_mib() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

bool asks_watch(const ApiServer::Request& request) { return request.target.find("watch=1") != request.target.npos; }
bool asks_initial(const ApiServer::Request& request) {
  return request.target.find("sendInitialEvents") != request.target.npos;
}
const std::string kTold =
    R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}})"
    "\n";

std::string change(const char* type, int version, const std::string& name = "node-1") {
  return R"({"type":")" + std::string(type) + R"(","object":)" + node(version, name) + "}\n";
}

struct Agent {
  Agent(executor control, Clock& clock, BlockingPool& pool, const kube::Access& access, const std::string& name)
      : api(control, clock, pool, pool, access), own(control, clock, &api, name) {
    own.start();
  }
  kube::Api api;
  kube::OwnNode own;
};

}  // namespace

int watch(int events, int rate) {
  log::set_level(log::Level::error);
  ApiServer server([events, rate](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (!asks_watch(request))
      return peer.answer(200, R"({"metadata":{"resourceVersion":"1"},"items":[)" + node(1) + "]}");
    peer.begin();
    if (asks_initial(request)) peer.piece(change("ADDED", 1) + kTold);
    const auto begin = Steady::now();
    for (int version = 2; version <= events; ++version) {
      if (rate > 0)
        std::this_thread::sleep_until(begin + std::chrono::nanoseconds(std::chrono::seconds(version)) / rate);
      peer.piece(change("MODIFIED", version, version % 2 == events % 2 ? "node-1" : "node-2"));
    }
    peer.hang();
  });
  asio::io_context io;
  const auto clock = make_real_clock(io.get_executor());
  BlockingPool pool(io.get_executor(), *clock, 1);
  Agent agent(io.get_executor(), *clock, pool, server.access(), "node-1");
  const auto seen = [&] {
    const auto labels = agent.own.labels();
    return labels ? std::stoi(labels->at("version")) : 0;
  };
  const auto begin = Steady::now();
  while (seen() < events / 10) io.run_one();
  const double early = resident_mib();
  while (seen() < events) io.run_one();
  const double seconds = std::chrono::duration<double>(Steady::now() - begin).count();
  std::printf(
      "%d changes of Nodes of %zu bytes, half of them the own, %.0f a second for %.0f s: %.1f MiB after a tenth, %.1f "
      "MiB after all\n",
      events, node(events).size(), events / seconds, seconds, early, resident_mib());
  std::fflush(stdout);
  // The server's threads end with the process.
  ::_exit(0);
}

int starts(int agents) {
  log::set_level(log::Level::error);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  std::mutex mutex;
  std::map<long, int> by_second;
  const auto begin = Steady::now();
  ApiServer server([&](const ApiServer::Request& request, ApiServer::Peer& peer) {
    {
      const std::lock_guard guard(mutex);
      ++by_second[std::chrono::duration_cast<std::chrono::seconds>(Steady::now() - begin).count()];
    }
    if (!asks_watch(request))
      return peer.answer(200, R"({"metadata":{"resourceVersion":"1"},"items":[)" + node(1) + "]}");
    peer.begin();
    if (asks_initial(request)) peer.piece(change("ADDED", 1) + kTold);
    peer.hang();
  });
  asio::io_context io;
  const auto clock = make_real_clock(io.get_executor());
  BlockingPool pool(io.get_executor(), *clock, 1);
  std::vector<std::unique_ptr<Agent>> all;
  for (int number = 0; number < agents; ++number)
    all.push_back(std::make_unique<Agent>(io.get_executor(), *clock, pool, server.access(), "node-1"));
  const auto known = [&] {
    return std::ranges::count_if(all, [](const auto& agent) { return agent->own.labels().has_value(); });
  };
  const auto end = Steady::now() + std::chrono::minutes(2);
  while (known() < agents && Steady::now() < end) io.run_for(std::chrono::milliseconds(200));
  const auto learned = known();
  std::string spread;
  int requests = 0;
  {
    const std::lock_guard guard(mutex);
    for (const auto& [second, count] : by_second) {
      spread += (spread.empty() ? "" : ", ") + std::to_string(count);
      requests += count;
    }
  }
  std::printf("%d agents start at once: %ld learned their labels by %d requests, second by second: %s\n", agents,
              static_cast<long>(learned), requests, spread.c_str());
  std::fflush(stdout);
  ::_exit(learned == agents ? 0 : 1);
}

}  // namespace corbd::bench
