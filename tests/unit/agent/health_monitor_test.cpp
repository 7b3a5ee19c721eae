// Who is asked for the facts of the node's health, and how often.
#include "health_monitor.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include "corbd/core/fd.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

struct Scene {
  Scene() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener.get(), 1000) == 0);
    monitor.start();
  }
  ~Scene() { loop.run(monitor.stop()); }
  /// The connections that wait at our own socket.
  int take_connections() {
    for (int count = 0;; ++count)
      if (!Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))) return count;
  }
  agent::HealthMonitor::Needs needs() {
    return {.files = pool,
            .names = pool,
            .state_dir = folder.path(),
            .endpoint = endpoint,
            .api = Error{errc::failed_precondition, "none"},
            .devices = devices,
            .keeper = nullptr,
            .pod_file = -1,
            .cordon = cordon,
            .registrar = registrar,
            .node = node,
            .metrics = [this] { return port; }};
  }

  test::Folder folder;
  const std::string socket_path = folder.path() + "/csi.sock", endpoint = "unix://" + socket_path;
  Fd listener{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  const std::map<device::Kind, std::unique_ptr<device::Devices>> none;
  device::Served devices{none};
  ops::Cordon cordon{loop.control(), loop.clock, pool, folder.path()};
  std::optional<csi::Registrar> registrar;
  kube::OwnNode node{loop.control(), loop.clock, Error{errc::failed_precondition, "none"}, "n1"};
  ops::PortFacts port;
  agent::HealthMonitor monitor{loop.control(), loop.clock, needs()};
};

}  // namespace

TEST_CASE("our own socket is asked at each beat, and not once more, however often the facts are wanted",
          "[failure:211]") {
  Scene scene;
  CHECK(scene.take_connections() == 1);
  for (int i = 0; i < 100; ++i) CHECK(scene.monitor.facts().csi);
  CHECK(scene.take_connections() == 0);
  scene.loop.clock.advance(2s);
  scene.loop.poll();
  CHECK(scene.take_connections() == 1);
}

TEST_CASE("a socket that nobody serves any more is told after the next beat") {
  Scene scene;
  scene.listener.reset();
  CHECK(scene.monitor.facts().csi);
  scene.loop.clock.advance(2s);
  scene.loop.poll();
  CHECK_FALSE(scene.monitor.facts().csi);
}

TEST_CASE("a port of the metrics that stays taken is told, and again when it is free") {
  Scene scene;
  std::vector<std::string> told;
  scene.port.refused = "9680 is in use";
  scene.monitor.start_serving([&told](const volume::Notice& notice) {
    if (notice.reason.starts_with("Metrics")) told.push_back(notice.reason);
  });
  scene.loop.advance(59s);
  CHECK(told.empty());
  scene.loop.advance(1s);
  CHECK(told == std::vector<std::string>{"MetricsNotServed"});
  scene.port.refused.clear();
  scene.loop.advance(10s);
  CHECK(told == std::vector<std::string>{"MetricsNotServed", "MetricsServed"});
}
