// A resize goes through a helper. The helper is played by a shell, which shows what it was asked and what it has.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "corbd/nbd/devices.hpp"
#include "ground.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"

namespace corbd::test {
namespace {

constexpr std::uint32_t kResized = 5;
const std::string kGrown = "a volume that grows";

/// Takes the request, and answers it once the gate is open.
const char* const kPlayed = R"(dd bs=300000 count=1 <&3 >"$0/request.part" 2>/dev/null
ls /proc/$$/fd >"$0/descriptors"
mv "$0/request.part" "$0/request"
while [ ! -e "$0/gate" ] && [ -e "$0" ]; do sleep 0.02; done
printf '{"reply":{}}' >&3)";

struct Growing {
  Growing() {
    config.helper = {"/bin/sh", {"-c", kPlayed, folder.path()}};
    devices = nbd::make_devices(loop.control(), loop.clock, std::move(config));
    auto pair = nbd::make_socket_pair();
    REQUIRE(pair);
    kernel = std::move(pair->second);
    devices->take(kResized, kGrown, std::move(pair->first));
    link = devices->resume(kResized, kGrown, image, false, {});
    REQUIRE(link);
  }
  ~Growing() {
    open_gate();
    link->shut();
    kernel.reset();
    CHECK(eventually(loop.io, [&] { return link->in_flight() == 0; }));
    link.reset();
    devices.reset();
  }
  Started<result<>> resize(Until until = {}) {
    return Started<result<>>(loop.io, devices->resize(*link, kResized, kGrown, 1u << 21, until));
  }
  bool asked() {
    return eventually(loop.io, [&] { return std::filesystem::exists(folder.path() + "/request"); });
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder.path() + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void open_gate() const { std::ofstream(folder.path() + "/gate") << "open"; }

  Folder folder;
  Loop loop;
  MemoryImage image{1u << 20};
  nbd::Config config;
  Fd kernel;
  std::unique_ptr<device::Devices> devices;
  std::unique_ptr<device::Link> link;
};

}  // namespace

TEST_CASE("a resize is given by a helper, which inherits none of the agent's descriptors", "[failure:162][rule:3]") {
  Growing growing;
  auto resized = growing.resize();
  REQUIRE(growing.asked());
  CHECK(growing.read("request").find("nbd_resize") != std::string::npos);
  CHECK(growing.read("request").find(kGrown) != std::string::npos);
  std::istringstream listed(growing.read("descriptors"));
  for (int fd = 0; listed >> fd;) CHECK((fd <= 3 || fd == 10 || fd == 255));  // the shell's own
  CHECK_FALSE(resized.done());
  growing.open_gate();
  CHECK(resized.get());
}

TEST_CASE("a link that no session resumes ends only after a dead agent's helper has finished its resize",
          "[failure:162]") {
  Folder folder;
  Loop loop;
  nbd::Config config;
  config.commands_lock = folder.path() + "/nbd.busy";
  Fd helper(::open(config.commands_lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::flock(helper.get(), LOCK_EX | LOCK_NB) == 0);
  const auto devices = nbd::make_devices(loop.control(), loop.clock, std::move(config));
  auto pair = nbd::make_socket_pair();
  REQUIRE(pair);
  devices->take(kResized, kGrown, std::move(pair->first));
  const auto ended = [&] {
    char byte = 0;
    return ::recv(pair->second.get(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  loop.advance(std::chrono::minutes(10));
  CHECK_FALSE(ended());
  ::flock(helper.get(), LOCK_UN);
  // The agent's own command comes first.
  loop.advance(std::chrono::seconds(1));
  REQUIRE(eventually(loop.io, [&] { return ::flock(helper.get(), LOCK_EX | LOCK_NB) == 0; }));
  helper.reset();
  loop.advance(std::chrono::seconds(61));
  CHECK(eventually(loop.io, ended));
}

TEST_CASE("a resize whose caller left is under way until its helper has ended", "[failure:162]") {
  Growing growing;
  auto resized = growing.resize({growing.loop.clock.now() + std::chrono::seconds(1)});
  REQUIRE(growing.asked());
  growing.loop.clock.advance(std::chrono::seconds(2));
  CHECK(resized.get().error().code == errc::timed_out);
  CHECK(growing.devices->under_way(kGrown));
  growing.open_gate();
  CHECK(eventually(growing.loop.io, [&] { return !growing.devices->under_way(kGrown); }));
}

}  // namespace corbd::test
