// The registration socket with a fake kubelet, and when the socket is recreated.
#include "registration.hpp"

#include <grpcpp/grpcpp.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <future>
#include <thread>
#include <tuple>

#include "corbd/core/fd.hpp"
#include "corbd/csi/registrar.hpp"
#include "pluginregistration/registration.grpc.pb.h"
#include "support/catch.hpp"
#include "support/control_thread.hpp"
#include "support/folder.hpp"
#include "support/loop.hpp"

using namespace corbd;
namespace wire = pluginregistration;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

using Identity = std::tuple<ino_t, time_t, long>;

/// A registrar on a thread of its own and on virtual time.
class Scene {
 public:
  test::ControlThread thread;

  Scene() : clock_(thread.control()) {
    fs::create_directory(folder());
    registrar_ = made();
    thread.start();
  }
  ~Scene() {
    stop();
    thread.call([this] { registrar_.reset(); });
    thread.end();
  }
  void start() {
    thread.call([this] { registrar_->start(inherited_, false); });
    thread.call([] {});
  }
  /// The next agent's registrar takes the socket over.
  void hand_over() {
    const bool registered = now().state == csi::Registered::State::registered;
    thread.call([this] { inherited_.add(registrar_->release()); });
    stop();
    thread.call([this] { registrar_ = made(); });
    thread.call([this, registered] { registrar_->start(inherited_, registered); });
    thread.call([] {});
  }
  void stop() { thread.finish(registrar_->stop({})); }
  csi::Registered now() {
    csi::Registered found;
    thread.call([&] { found = registrar_->now(); });
    return found;
  }
  void advance(duration by) {
    thread.call([&] { clock_.advance(by); });
    for (int rounds = 0; rounds < 8; ++rounds) thread.call([] {});
  }
  std::string folder() const { return folder_.path() + "/plugins_registry"; }
  std::string socket() const { return folder() + "/rbd.csi.ceph.com-reg.sock"; }

  wire::PluginInfo get_info() const {
    wire::PluginInfo info;
    grpc::ClientContext context;
    REQUIRE(kubelet(context)->GetInfo(&context, wire::InfoRequest(), &info).ok());
    return info;
  }
  void notify(bool registered, const std::string& error = {}) const {
    wire::RegistrationStatus status;
    status.set_plugin_registered(registered);
    status.set_error(error);
    wire::RegistrationStatusResponse response;
    grpc::ClientContext context;
    REQUIRE(kubelet(context)->NotifyRegistrationStatus(&context, status, &response).ok());
  }
  /// The identity of the socket's file, or nothing if there is no file.
  std::optional<Identity> file() const {
    struct stat found{};
    if (::lstat(socket().c_str(), &found) != 0) return std::nullopt;
    return Identity(found.st_ino, found.st_ctim.tv_sec, found.st_ctim.tv_nsec);
  }
  bool recreated(const std::optional<Identity>& before) const {
    for (int tries = 0; tries < 2000; ++tries, std::this_thread::sleep_for(10ms))
      if (const auto now = file(); now && now != before) return true;
    return false;
  }

 private:
  std::unique_ptr<csi::Registrar> made() {
    return std::make_unique<csi::Registrar>(
        thread.control(), clock_,
        csi::RegistrarConfig{folder(), "rbd.csi.ceph.com", "/var/lib/kubelet/plugins/rbd.csi.ceph.com/csi.sock"});
  }
  std::unique_ptr<wire::Registration::Stub> kubelet(grpc::ClientContext& context) const {
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return wire::Registration::NewStub(
        grpc::CreateCustomChannel("unix://" + socket(), grpc::InsecureChannelCredentials(), arguments));
  }

  test::Folder folder_;
  VirtualClock clock_;
  std::unique_ptr<csi::Registrar> registrar_;
  rpc::Inherited inherited_;
};

Fd bound(const std::string& path) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

}  // namespace

TEST_CASE("the driver stays registered during a handover, and a watcher of the registry folder sees no event") {
  Scene scene;
  scene.start();
  scene.get_info();
  scene.notify(true);
  scene.advance(duration::zero());
  const Fd watcher(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  REQUIRE(::inotify_add_watch(watcher.get(), scene.folder().c_str(), IN_CREATE | IN_DELETE | IN_MOVE) >= 0);
  scene.hand_over();
  CHECK(scene.get_info().name() == "rbd.csi.ceph.com");
  CHECK(scene.now().state == csi::Registered::State::registered);
  std::array<char, 4096> events;
  CHECK(::read(watcher.get(), events.data(), events.size()) < 0);
  scene.stop();
  CHECK(::read(watcher.get(), events.data(), events.size()) > 0);
}

TEST_CASE(
    "a next agent to which nobody registered the driver makes a new socket, since kubelet may have told its "
    "predecessor") {
  Scene scene;
  scene.start();
  scene.get_info();
  scene.hand_over();
  const auto before = scene.file();
  scene.advance(61s);
  CHECK(scene.recreated(before));
}

TEST_CASE("the socket of a registered driver is not recreated however often kubelet calls GetInfo") {
  Scene scene;
  scene.start();
  scene.get_info();
  scene.notify(true);
  scene.advance(duration::zero());
  const auto before = scene.file();
  for (int times = 0; times < 12; ++times) {
    scene.get_info();
    scene.advance(10s);
  }
  CHECK(scene.file() == before);
  CHECK(scene.now().state == csi::Registered::State::registered);
}

TEST_CASE("the answer to GetInfo has the driver's name and the path of its socket on the host") {
  Scene scene;
  scene.start();
  const auto info = scene.get_info();
  CHECK(info.type() == "CSIPlugin");
  CHECK(info.name() == "rbd.csi.ceph.com");
  CHECK(info.endpoint() == "/var/lib/kubelet/plugins/rbd.csi.ceph.com/csi.sock");
  REQUIRE(info.supported_versions_size() == 1);
  CHECK(info.supported_versions(0) == "1.0.0");
}

TEST_CASE("the registration socket has mode 0600") {
  Scene scene;
  scene.start();
  struct stat found{};
  REQUIRE(::stat(scene.socket().c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0600);
}

// Kubelet waits one second for the answer.
TEST_CASE("the registration socket answers GetInfo while the control thread is busy") {
  Scene scene;
  scene.start();
  std::promise<void> release;
  std::thread blocker([&] { scene.thread.call([&] { release.get_future().wait(); }); });
  CHECK(scene.get_info().name() == "rbd.csi.ceph.com");
  release.set_value();
  blocker.join();
}

TEST_CASE("a registration socket that a dead agent left is replaced at startup") {
  Scene scene;
  bound(scene.socket()).reset();
  const auto before = scene.file();
  scene.start();
  CHECK(scene.file() != before);
  CHECK(scene.get_info().name() == "rbd.csi.ceph.com");
}

TEST_CASE("a driver that kubelet has registered keeps its registration socket") {
  Scene scene;
  scene.start();
  const auto before = scene.file();
  scene.get_info();
  scene.notify(true);
  scene.advance(1h);
  CHECK(scene.file() == before);
}

TEST_CASE("a registration socket that kubelet has not called yet is kept") {
  Scene scene;
  scene.start();
  const auto before = scene.file();
  scene.advance(24h);
  CHECK(scene.file() == before);
}

TEST_CASE("the registration socket is recreated after each refusal by kubelet, each time after a longer pause") {
  Scene scene;
  scene.start();
  for (const auto pause : {1s, 2s, 4s}) {
    const auto before = scene.file();
    scene.get_info();
    scene.notify(false, "another driver with this name is registered");
    CHECK(scene.file() == before);
    scene.advance(pause);
    REQUIRE(scene.recreated(before));
  }
  CHECK(scene.get_info().name() == "rbd.csi.ceph.com");
}

TEST_CASE(
    "the registration socket is recreated each time that kubelet calls GetInfo and then reports nothing for a minute") {
  Scene scene;
  scene.start();
  for (int times = 0; times < 2; ++times) {
    const auto before = scene.file();
    scene.get_info();
    scene.advance(59s);
    CHECK(scene.file() == before);
    scene.advance(1s);
    REQUIRE(scene.recreated(before));
  }
}

TEST_CASE("the registrar knows kubelet's last report about the driver, or that there is none") {
  using State = csi::Registered::State;
  Scene scene;
  scene.start();
  CHECK(scene.now().state == State::waits);
  scene.get_info();
  scene.notify(false, "another driver with this name is registered");
  CHECK(scene.now().state == State::refused);
  CHECK(scene.now().text == "another driver with this name is registered");
  const auto before = scene.file();
  scene.advance(1s);
  REQUIRE(scene.recreated(before));
  CHECK(scene.now().state == State::refused);
  scene.get_info();
  scene.notify(true);
  CHECK(scene.now().state == State::registered);
  fs::remove(scene.socket());
  scene.advance(60s);
  REQUIRE(scene.recreated(std::nullopt));
  CHECK(scene.now().state == State::waits);
}

TEST_CASE("a registration socket that somebody removes is recreated within a minute") {
  Scene scene;
  scene.start();
  scene.get_info();
  scene.notify(true);
  fs::remove(scene.socket());
  scene.advance(60s);
  CHECK(scene.recreated(std::nullopt));
}

TEST_CASE("a sidecar's registration socket is left alone while it answers, and replaced when it is gone") {
  Scene scene;
  auto sidecar = bound(scene.socket());
  REQUIRE(::listen(sidecar.get(), 1) == 0);
  const auto before = scene.file();
  scene.start();
  CHECK(scene.file() == before);
  CHECK(scene.now().state == csi::Registered::State::elsewhere);
  CHECK_THAT(scene.now().text, ContainsSubstring("--register=false"));
  sidecar.reset();
  scene.advance(1s);
  CHECK(scene.recreated(before));
  scene.get_info();
  CHECK(scene.now().state == csi::Registered::State::waits);
}

TEST_CASE("a stopping agent removes its registration socket, but not one that has taken its place") {
  Scene scene;
  scene.start();
  SECTION("the agent's own socket") {
    scene.stop();
    CHECK_FALSE(scene.file());
  }
  SECTION("another program's socket") {
    fs::remove(scene.socket());
    const auto another = bound(scene.socket());
    scene.stop();
    CHECK(scene.file());
  }
}

TEST_CASE("the agent registers with kubelet if the registry folder exists, unless --register decides") {
  const std::string below = "unix:///var/lib/kubelet/plugins/d/csi.sock";
  const auto config = [](std::optional<bool> by_hand, const std::string& endpoint, const std::string& on_host,
                         bool exists) {
    return csi::registrar_config({by_hand, "/var/lib/kubelet", "d", endpoint, on_host}, exists);
  };
  CHECK_FALSE(config({}, below, "", false).value());
  CHECK_FALSE(config(false, below, "", true).value());
  for (const auto& told : {config({}, below, "", true).value(), config(true, below, "", false).value()}) {
    REQUIRE(told);
    CHECK(told->folder == "/var/lib/kubelet/plugins_registry");
    CHECK(told->endpoint == "/var/lib/kubelet/plugins/d/csi.sock");
  }
}

TEST_CASE("a CSI socket outside of kubelet's folder is registered only with --kubelet-registration-path") {
  const auto config = [](std::optional<bool> by_hand, const std::string& on_host) {
    return csi::registrar_config({by_hand, "/var/lib/kubelet", "d", "unix:///csi/csi.sock", on_host}, true);
  };
  CHECK(config({}, "/host/csi.sock").value()->endpoint == "/host/csi.sock");
  CHECK_FALSE(config({}, "").value());
  CHECK(config(true, "").error().code == errc::failed_precondition);
  CHECK_THAT(config(true, "").error().text, ContainsSubstring("--kubelet-registration-path"));
  CHECK(config({}, "unix:///host/csi.sock").error().code == errc::invalid_argument);
}

TEST_CASE("the time to recreate a registration socket follows from kubelet's last call and its refusals") {
  const time_point then{1h};
  csi::Heard heard;
  CHECK(csi::renewal(heard, 0.5) == time_point::max());
  heard.asked = then;
  CHECK(csi::renewal(heard, 0.5) == then + csi::kSilence);
  heard.refused = then;
  heard.failures = 1;
  CHECK(csi::renewal(heard, 0.5) == then + 500ms);
  heard.failures = 20;
  CHECK(csi::renewal(heard, 0.75) == then + csi::kSilence);
  heard.asked.reset();
  CHECK(csi::renewal(heard, 0.75) == then + 90s);
}
