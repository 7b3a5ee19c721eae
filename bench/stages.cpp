#include "stages.hpp"

#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <thread>

#include "corbd/core/log.hpp"
#include "corbd/manager/manager.hpp"
#include "csi/v1/csi.grpc.pb.h"
#include "fake_agent.hpp"
#include "node.hpp"
#include "support/cpu.hpp"

namespace corbd::bench {
namespace {

namespace fs = std::filesystem;
namespace v1 = ::csi::v1;

std::string id_of(int number) { return "volume-" + std::to_string(number); }
std::string path_of(const std::string& dir, int number) { return dir + "/staging/" + id_of(number); }

v1::NodeStageVolumeRequest request(const std::string& dir, int number) {
  v1::NodeStageVolumeRequest made;
  made.set_volume_id(id_of(number));
  made.set_staging_target_path(path_of(dir, number));
  made.mutable_volume_capability()->mutable_mount()->set_fs_type("ext4");
  made.mutable_volume_capability()->mutable_access_mode()->set_mode(
      v1::VolumeCapability::AccessMode::SINGLE_NODE_MULTI_WRITER);
  *made.mutable_secrets() = google::protobuf::Map<std::string, std::string>();
  (*made.mutable_secrets())["userID"] = "node";
  (*made.mutable_secrets())["userKey"] = "key";
  for (const auto& [name, value] : {std::pair{"staticVolume", "true"}, {"clusterID", "bench"}, {"pool", "pool"}})
    (*made.mutable_volume_context())[name] = value;
  return made;
}

/// Milliseconds of one call on a connection of its own.
double call(const std::string& dir, int number) {
  const auto wanted = request(dir, number);
  grpc::ChannelArguments alone;
  alone.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto begin = std::chrono::steady_clock::now();
  const auto channel =
      grpc::CreateCustomChannel("unix://" + dir + "/csi.sock", grpc::InsecureChannelCredentials(), alone);
  grpc::ClientContext context;
  v1::NodeStageVolumeResponse response;
  const auto status = v1::Node::NewStub(channel)->NodeStageVolume(&context, wanted, &response);
  if (!status.ok()) throw std::runtime_error("stage of " + wanted.volume_id() + ": " + status.error_message());
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

std::string idle_mark(const std::string& dir) { return dir + "/idle"; }

/// idle: not zero, and nothing is called for so long once all are staged.
int kubelet(const std::string& dir, int volumes, int calls, std::chrono::seconds idle) {
  for (int number = 0; number < volumes; ++number) call(dir, number);
  std::this_thread::sleep_for(2 * fake::kSettled);
  if (idle.count() > 0) {
    std::ofstream(idle_mark(dir)).flush();
    std::this_thread::sleep_for(idle);
    return 0;
  }
  std::vector<double> took;
  for (int i = 0; i < calls; ++i) took.push_back(call(dir, i * 7 % volumes));
  std::sort(took.begin(), took.end());
  const auto at = [&](double part) {
    return took[static_cast<std::size_t>(part * static_cast<double>(took.size() - 1))];
  };
  std::printf(
      "a repeated stage with %d staged volumes, %d calls on new connections: p50 %.2f ms, p99 %.2f ms, longest %.2f "
      "ms\n",
      volumes, calls, at(0.5), at(0.99), took.back());
  return 0;
}

/// A new node, on the whole of which nothing else is staged.
int drive(const std::string& dir, int volumes, int at_once, const std::string& json) {
  NodeAsk ask;
  ask.endpoint = "unix://" + dir + "/csi.sock";
  ask.root = dir + "/staging";
  ask.at_once = at_once;
  ask.subject = "corbd";
  ask.bench = "scale";
  ask.json = json;
  for (int number = 0; number < volumes; ++number) {
    const auto like = request(dir, number);
    manager::Mount mount;
    mount.volume.external_id = mount.volume.name = like.volume_id();
    mount.user = "bench";
    mount.usage.fstype = "ext4";
    mount.target = manager::default_target(ask.root, mount);
    mount.volume_context = {like.volume_context().begin(), like.volume_context().end()};
    for (const auto& [name, value] : like.secrets()) mount.secrets[name] = Secret(value);
    ask.volumes.push_back(std::move(mount));
  }
  return node(ask);
}

/// In the child: the caller, once the agent serves.
[[noreturn]] void call_it(const std::string& dir, const std::function<int(const std::string&)>& caller) try {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  while (!fs::exists(dir + "/csi.sock")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const int code = caller(dir);
  std::fflush(stdout);  // _exit() does not
  ::_exit(code);
} catch (const std::exception& failed) {
  std::fprintf(stderr, "corbd-bench: %s\n", failed.what());
  ::_exit(1);
}

/// An agent of this process, and its caller, a process of its own.
int serve(int volumes, std::chrono::seconds idle, const std::function<int(const std::string&)>& caller) {
  std::string dir = "/dev/shm/corbd-bench-XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr) throw std::runtime_error("no folder below /dev/shm");
  for (const char* name : {"/state", "/runtime"}) fs::create_directory(dir + name);
  for (int number = 0; number < volumes; ++number) fs::create_directories(path_of(dir, number));
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    throw std::runtime_error("a mount namespace of its own needs root");
  // Before any thread, and before gRPC.
  const pid_t child = ::fork();
  if (child == 0) call_it(dir, caller);
  for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_IGN);  // the child has them too, and ends
  log::set_level(log::Level::error);
  fake::Agent agent(dir);
  bool up = false;
  rpc::Inherited none;
  asio::co_spawn(agent.io, agent.shell.start(), [&](std::exception_ptr, result<> done) {
    up = done && agent.server.start(none);
    agent.healer.start();
  });
  const auto work = asio::make_work_guard(agent.io);
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0 && !fs::exists(idle_mark(dir)))
    agent.io.run_one_for(std::chrono::milliseconds(100));
  if (idle.count() > 0) {
    const double before = test::cpu_seconds();
    agent.io.run_for(idle);
    const double used = test::cpu_seconds() - before;
    std::printf("%d idle volumes beside a cluster that is none: %.3f s of CPU in %lld s, %.3f %% of a core\n", volumes,
                used, static_cast<long long>(idle.count()), 100 * used / static_cast<double>(idle.count()));
    ::waitpid(child, &status, 0);
  }
  std::fflush(stdout);
  fs::remove_all(dir + "/state");
  // Its threads, connections and mounts end with the process.
  if (fs::remove(dir + "/csi.sock"); !up) std::fputs("corbd-bench: the agent did not start\n", stderr);
  for (int number = 0; number < volumes; ++number)
    ::umount2((path_of(dir, number) + "/" + id_of(number)).c_str(), MNT_DETACH);
  fs::remove_all(dir);
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

}  // namespace

int stages(int volumes, int calls) {
  return serve(volumes, {}, [=](const std::string& dir) { return kubelet(dir, volumes, calls, {}); });
}
int idle(int volumes, std::chrono::seconds time) {
  return serve(volumes, time, [=](const std::string& dir) { return kubelet(dir, volumes, 0, time); });
}
int scale(int volumes, int at_once, const std::string& json) {
  return serve(volumes, {}, [&](const std::string& dir) { return drive(dir, volumes, at_once, json); });
}

}  // namespace corbd::bench
