#include "stages.hpp"

#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "corbd/core/log.hpp"
#include "corbd/csi/server.hpp"
#include "corbd/heal/healer.hpp"
#include "corbd/host/helpers.hpp"
#include "corbd/host/luks.hpp"
#include "corbd/kms/kms.hpp"
#include "corbd/nbd/devices.hpp"
#include "csi/v1/csi.grpc.pb.h"
#include "support/cpu.hpp"
#include "support/still_ports.hpp"

namespace corbd::bench {
namespace {

namespace fs = std::filesystem;
namespace still = test::still;
namespace v1 = ::csi::v1;

constexpr std::chrono::seconds kSettled{2};

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

/// Files as sysfs has them, read by the real inventory.
class Devices final : public still::Devices {
 public:
  Devices(executor control, Clock& clock, std::string sysfs)
      : clock_(clock), sysfs_(std::move(sysfs)), real_(nbd::make_devices(std::move(control), clock, {sysfs_})) {
    fs::create_directories(sysfs_ + "/module/nbd");
    fs::create_directories(sysfs_ + "/block");
  }
  result<std::vector<device::Seen>> inventory() const override { return real_->inventory(); }
  /// The real one sees at once only what its own commands made.
  result<std::vector<device::Seen>> find(const std::string& backend) const override {
    return clock_.now() - last_made_ < kSettled ? device::Devices::find(backend) : real_->find(backend);
  }
  task<result<std::uint32_t>> connect(device::Link&, device::ConnectArgs args, Until) override {
    const auto index = made_++;
    last_made_ = clock_.now();
    const std::string folder = folder_of(index);
    fs::create_directories(folder + "/queue");
    fs::create_directories(folder + "/holders");
    for (const auto& [name, text] : {std::pair<std::string, std::string>{"backend", args.backend},
                                     {"pid", "1"},
                                     {"dev", "43:" + std::to_string(index * 32)},
                                     {"size", std::to_string(args.size / 512)},
                                     {"queue/io_timeout", "1000"},
                                     {"inflight", "0 0"}})
      std::ofstream(folder + "/" + name) << text << "\n";
    co_return index;
  }
  /// The mount's own numbers are the device's.
  void shown_by(std::uint32_t index, const struct stat& mount) {
    std::ofstream(folder_of(index) + "/dev") << major(mount.st_dev) << ":" << minor(mount.st_dev) << "\n";
  }

 private:
  std::string folder_of(std::uint32_t index) const { return sysfs_ + "/block/nbd" + std::to_string(index); }
  Clock& clock_;
  const std::string sysfs_;
  std::unique_ptr<device::Devices> real_;
  std::uint32_t made_ = 0;
  time_point last_made_{};
};

/// A tmpfs for each volume; mountinfo is the real one.
class Mounts final : public still::Mounts {
 public:
  Mounts(HelperPool& helpers, Devices& devices) : real_(host::make_mounts(helpers)), devices_(devices) {}
  result<host::MountTable> table() const override { return real_->table(); }
  task<result<>> mount(std::string device, std::string, std::string target, std::string, HelperOwner, Until) override {
    fs::create_directories(target);
    struct stat seen{};
    if (::mount("bench", target.c_str(), "tmpfs", 0, "size=64k") != 0 || ::stat(target.c_str(), &seen) != 0)
      co_return Error{errc::io, "mounting a tmpfs at " + target};
    devices_.shown_by(static_cast<std::uint32_t>(std::stoul(device.substr(8))), seen);
    co_return result<>();
  }

 private:
  std::unique_ptr<host::Mounts> real_;
  Devices& devices_;
};

class Filesystems final : public still::Filesystems {
 public:
  task<result<host::Probe>> probe(std::string, HelperOwner, Until) override {
    co_return host::Probe{host::Probe::Kind::filesystem, "ext4"};
  }
  task<result<host::Extent>> extent(std::string, std::string, std::string, HelperOwner, Until) override {
    co_return host::Extent{1 << 20, 4096};
  }
};

class NodeFiles final : public still::NodeFiles {
 public:
  task<result<>> check_path(std::string path, bool must_exist) override {
    co_return host::check_path("/dev/shm", path, must_exist);
  }
  bool busy(const std::string& busy_file) const override { return host::busy(busy_file); }
};

/// What `corbd run` makes of the rooms, beside a cluster and devices that are none.
struct Agent {
  explicit Agent(std::string folder) : dir(std::move(folder)), server(control, *clock, shell, config()) {}
  csi::Config config() const {
    csi::Config made;
    made.endpoint = "unix://" + dir + "/csi.sock";
    made.drivername = "rbd.csi.ceph.com";
    made.nodeid = "node";
    made.version = "bench";
    return made;
  }
  volume::Ports ports() {
    return {.clusters = clusters,
            .devices = devices,
            .kernel = kernel,
            .mounts = mounts,
            .filesystems = filesystems,
            .daemons = daemons,
            .luks = *luks,
            .kms = *kms,
            .records = *records,
            .directory = directory,
            .files = files,
            .orchestrator = nobody};
  }
  static volume::Config shell_config() {
    volume::Config made;
    made.boot_id = "boot";
    made.policy.driver = "rbd.csi.ceph.com";
    return made;
  }
  const std::string dir;
  asio::io_context io;
  executor control = io.get_executor();
  std::unique_ptr<Clock> clock = make_real_clock(control);
  BlockingPool pool{control, *clock, 8};
  HelperPool helpers{control, *clock, {}};
  still::Clusters clusters;
  Devices devices{control, *clock, dir + "/sys"};
  still::KernelClient kernel;
  Mounts mounts{helpers, devices};
  Filesystems filesystems;
  still::Daemons daemons;
  std::unique_ptr<host::Luks> luks = host::make_luks(helpers);
  std::unique_ptr<kms::Kms> kms = kms::make_kms(pool, dir);
  std::unique_ptr<volume::RecordStore> records = volume::make_record_store(pool, dir + "/state", dir + "/runtime");
  still::ClusterDirectory directory{"mon"};
  NodeFiles files;
  still::Orchestrator nobody;
  volume::Shell shell{control, *clock, ports(), shell_config()};
  heal::Healer healer{control, *clock, shell, {}};
  csi::Server server;
};

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
int kubelet(const std::string& dir, int volumes, int calls, std::chrono::seconds idle) try {
  while (!fs::exists(dir + "/csi.sock")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (int number = 0; number < volumes; ++number) call(dir, number);
  std::this_thread::sleep_for(2 * kSettled);
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
  std::fflush(stdout);  // _exit() does not
  return 0;
} catch (const std::exception& failed) {
  std::fprintf(stderr, "corbd-bench: %s\n", failed.what());
  return 1;
}

int serve(int volumes, int calls, std::chrono::seconds idle) {
  std::string dir = "/dev/shm/corbd-bench-XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr) throw std::runtime_error("no folder below /dev/shm");
  for (const char* name : {"/state", "/runtime"}) fs::create_directory(dir + name);
  for (int number = 0; number < volumes; ++number) fs::create_directories(path_of(dir, number));
  // Before any thread, and before gRPC.
  const pid_t child = ::fork();
  if (child == 0) ::_exit(kubelet(dir, volumes, calls, idle));
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    throw std::runtime_error("a mount namespace of its own needs root");
  log::set_level(log::Level::error);
  Agent agent(dir);
  bool up = false;
  asio::co_spawn(agent.io, agent.shell.start(), [&](std::exception_ptr, result<> done) {
    up = done && agent.server.start();
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

int stages(int volumes, int calls) { return serve(volumes, calls, {}); }
int idle(int volumes, std::chrono::seconds time) { return serve(volumes, 0, time); }

}  // namespace corbd::bench
