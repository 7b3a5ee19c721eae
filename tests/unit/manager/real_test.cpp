// Managers with everything real but the plugin's storage: gRPC, helpers, mounts, claims and locks on disk.
#include <fstream>
#include <thread>

#include "corbd/core/file.hpp"
#include "corbd/manager/manager.hpp"
#include "scripted_plugin.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"
#include "support/places.hpp"
#include "unit/host/ground.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;
using grpc::StatusCode;
namespace fs = std::filesystem;

namespace {

/// As one process has it, without the process.
struct Real {
  Real(const std::string& root, const std::string& socket)
      : clock(make_real_clock(io.get_executor())),
        files(io.get_executor(), *clock, 1),
        helpers(io.get_executor(), *clock, helper_child(helper_child_program())),
        plugin(manager::connect(io.get_executor(), *clock, "unix://" + socket)),
        node(manager::make_node(helpers)),
        claims(manager::make_claims(files, root + "/claims")),
        manager(io.get_executor(), *clock, {*plugin, *node, *claims}, config_of(root)) {}

  static manager::Config config_of(const std::string& root) {
    manager::Config config;
    config.root = root;
    config.locks_dir = root + "/locks";
    return config;
  }
  static manager::Mount wish(const std::string& target, const std::string& id = "vol") {
    manager::Mount mount;
    mount.volume.external_id = id;
    mount.user = "test";
    mount.target = target;
    return mount;
  }
  result<manager::Claim> mount(const std::string& target) {
    return Started<result<manager::Claim>>(io, manager.mount(wish(target), {})).get();
  }
  result<> unmount(const std::string& target) { return Started<result<>>(io, manager.unmount(target, {})).get(); }

  asio::io_context io;
  std::unique_ptr<Clock> clock;
  BlockingPool files;
  HelperPool helpers;
  std::unique_ptr<manager::Plugin> plugin;
  std::unique_ptr<manager::Node> node;
  std::unique_ptr<manager::Claims> claims;
  manager::Manager manager;
};

struct Ground {
  Folder folder;
  std::string base = fs::canonical(folder.path()), root = base + "/root", target = base + "/srv";
  std::string socket = base + "/csi.sock";
  ~Ground() {
    // A failed test leaves mounts in the namespace of this process.
    for (const auto& path : {target, base + "/other"}) ::umount2(path.c_str(), MNT_DETACH);
  }
};

}  // namespace

TEST_CASE("data written through a mount survives the unmount of another user, and the last unmount leaves nothing") {
  if (!may_mount()) return;
  Ground ground;
  ScriptedPlugin plugin(ground.socket, true);
  {
    Real process(ground.root, ground.socket);
    REQUIRE(process.mount(ground.target));
    std::ofstream(ground.target + "/data") << "precious";
  }
  Real process(ground.root, ground.socket);
  REQUIRE(process.mount(ground.base + "/other"));
  CHECK(*read_file(ground.base + "/other/data", 100) == "precious");
  REQUIRE(process.unmount(ground.base + "/other"));
  CHECK(*read_file(ground.target + "/data", 100) == "precious");
  REQUIRE(process.unmount(ground.target));
  CHECK_FALSE(fs::exists(ground.target));
  CHECK(fs::is_empty(ground.root + "/claims"));
  CHECK_FALSE(fs::exists(ground.root + "/staging/default"));
}

TEST_CASE("a folder that was there before the mount is there after it, with its permissions") {
  if (!may_mount()) return;
  Ground ground;
  ScriptedPlugin plugin(ground.socket, true);
  fs::create_directory(ground.target);
  fs::permissions(ground.target, fs::perms(0711));
  Real process(ground.root, ground.socket);
  REQUIRE(process.mount(ground.target));
  REQUIRE(process.unmount(ground.target));
  REQUIRE(fs::is_directory(ground.target));
  CHECK(fs::status(ground.target).permissions() == fs::perms(0711));
}

TEST_CASE("an unmount of a mount in use names the process, and succeeds when it is gone") {
  if (!may_mount()) return;
  Ground ground;
  ScriptedPlugin plugin(ground.socket, true);
  Real process(ground.root, ground.socket);
  REQUIRE(process.mount(ground.target));
  {
    std::ofstream open(ground.target + "/data");
    const auto refused = process.unmount(ground.target);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::in_use);
    CHECK_THAT(refused.error().text, ContainsSubstring("(" + std::to_string(::getpid()) + ")"));
  }
  CHECK(process.unmount(ground.target));
}

TEST_CASE("two processes that mount the same at once make one mount") {
  if (!may_mount()) return;
  Ground ground;
  ScriptedPlugin plugin(ground.socket, true);
  std::atomic<int> good{0};
  std::vector<std::thread> processes;
  for (int i = 0; i < 4; ++i)
    processes.emplace_back([&] {
      Real process(ground.root, ground.socket);
      if (process.mount(ground.target)) ++good;
    });
  for (auto& process : processes) process.join();
  CHECK(good == 4);
  const auto calls = plugin.calls();
  CHECK(std::ranges::count(calls, "stage") == 1);
  CHECK(std::ranges::count(calls, "publish") == 1);
  Real process(ground.root, ground.socket);
  CHECK(process.unmount(ground.target));
}

TEST_CASE("a target that is a link or holds a file is refused by its name, and the file stays") {
  Ground ground;
  ScriptedPlugin plugin(ground.socket);
  Real process(ground.root, ground.socket);
  fs::create_directory(ground.base + "/real");
  fs::create_symlink(ground.base + "/real", ground.target);
  CHECK_THAT(process.mount(ground.target).error().text, ContainsSubstring(ground.target + " is a symbolic link"));
  fs::remove(ground.target);
  fs::create_directory(ground.target);
  std::ofstream(ground.target + "/precious") << "x";
  const auto refused = process.mount(ground.target);
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, ContainsSubstring("it holds precious"));
  CHECK(fs::exists(ground.target + "/precious"));
  CHECK(std::ranges::count(plugin.calls(), "stage") == 0);
}

TEST_CASE("a mount survives a short absence of its plugin, and is undone later after a long one") {
  if (!may_mount()) return;
  Ground ground;
  ScriptedPlugin plugin(ground.socket, true);
  Real process(ground.root, ground.socket);
  std::atomic<int> failures{2};
  plugin.say([&](const std::string& call, grpc::ServerContext&) -> std::optional<grpc::Status> {
    if (call != "publish" || failures-- <= 0) return std::nullopt;
    return grpc::Status(StatusCode::UNAVAILABLE, "restarting");
  });
  REQUIRE(process.mount(ground.target));
  plugin.stop();
  const auto refused = process.unmount(ground.target);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unavailable);
  plugin.start();
  REQUIRE(Started<result<>>(process.io, process.manager.wait_ready({process.clock->now() + 20s})).get());
  CHECK(process.unmount(ground.target));
}

TEST_CASE("the watch tells when a plugin becomes ready, goes and comes back") {
  struct Ear final : manager::Listener {
    void heard(const manager::Event& event) override {
      if (event.what == manager::Event::What::plugin) all.push_back(event.success);
    }
    std::vector<bool> all;
  };
  Ground ground;
  Real process(ground.root, ground.socket);
  auto config = Real::config_of(ground.root);
  config.period = 1s;
  manager::Manager watching(process.io.get_executor(), *process.clock,
                            {*process.plugin, *process.node, *process.claims}, config);
  Ear ear;
  watching.tell(ear);
  std::optional<ScriptedPlugin> plugin(std::in_place, ground.socket);
  plugin->ready = false;
  watching.start();
  const auto ready = [&] { return watching.health().ready; };
  REQUIRE(eventually(process.io, [&] { return !watching.health().problem.empty(); }));
  CHECK_FALSE(ready());
  plugin->ready = true;
  REQUIRE(eventually(process.io, ready));
  CHECK(watching.health().name == "scripted.csi.example.com");
  CHECK(watching.health().stages == true);
  plugin->stop();
  REQUIRE(eventually(process.io, [&] { return !ready(); }));
  plugin->start();
  REQUIRE(eventually(process.io, ready));
  CHECK(ear.all == std::vector<bool>{true, false, true});
  bool stopped = false;
  asio::co_spawn(process.io, watching.stop({}), [&](std::exception_ptr) { stopped = true; });
  CHECK(eventually(process.io, [&] { return stopped; }));
}
