// What a unix socket says before anybody speaks gRPC to it.
#include "socket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/rpc/calls.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;

namespace {

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

struct Scene {
  explicit Scene(int queue) : listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const auto address = address_of(path);
    REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener.get(), queue) == 0);
  }
  /// Connects until nobody may wait any more.
  void fill() {
    const auto address = address_of(path);
    for (int failed = 0; failed == 0;) {
      waiting.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      failed = ::connect(waiting.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    }
    REQUIRE(errno == EAGAIN);
  }
  test::Folder folder;
  const std::string path = folder.path() + "/csi.sock";
  Fd listener;
  std::vector<Fd> waiting;
};

}  // namespace

TEST_CASE("a socket answers while it takes connections, and not while as many wait as may", "[failure:211]") {
  Scene scene(2);
  CHECK(rpc::answers("unix://" + scene.path));
  scene.fill();
  const auto full = rpc::answers("unix://" + scene.path);
  REQUIRE_FALSE(full);
  CHECK(full.error().code == errc::unavailable);
  CHECK_THAT(full.error().text, ContainsSubstring(scene.path + " takes no connection"));
}

TEST_CASE("a socket whose queue is full belongs to a process that lives, and stays") {
  Scene scene(0);
  scene.fill();
  const auto taken = rpc::prepare_socket(scene.path);
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == errc::in_use);
  struct stat there{};
  CHECK(::lstat(scene.path.c_str(), &there) == 0);
}

TEST_CASE("a socket that nobody listens on does not answer, and makes room") {
  Scene scene(0);
  scene.listener.reset();
  CHECK_FALSE(rpc::answers("unix://" + scene.path));
  CHECK(rpc::prepare_socket(scene.path));
  struct stat there{};
  CHECK(::lstat(scene.path.c_str(), &there) != 0);
}
