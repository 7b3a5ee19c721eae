// What commands print and return if no agent answers, or before they ask one.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "admin_socket.hpp"
#include "support/catch.hpp"
#include "support/command_line.hpp"
#include "support/folder.hpp"

using namespace corbd;

namespace {

/// A socket that listens until the object is destroyed.
class Listener {
 public:
  explicit Listener(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(fd_, 1) == 0);
  }
  ~Listener() { ::close(fd_); }

 private:
  int fd_;
};

}  // namespace

TEST_CASE("a command that finds no agent exits with 3 and names the socket and --runtime-dir") {
  const test::Folder folder;
  for (const char* name : {"status", "volumes", "events", "handover"}) {
    const auto answer = test::answer_to({name, "--runtime-dir", folder.path()});
    CHECK(answer.code == 3);
    CHECK(answer.problems.starts_with(std::string("corbd ") + name + ": "));
    CHECK_THAT(answer.problems, ContainsSubstring(folder.path() + "/admin.sock"));
    CHECK_THAT(answer.problems, ContainsSubstring("--runtime-dir"));
  }
}

TEST_CASE("the socket of a dead agent is told apart from a missing socket and from one that answers") {
  const test::Folder folder;
  const auto socket = cli::admin_socket(folder.path());
  CHECK(cli::look_for_agent(socket).error().code == errc::not_found);
  {
    const Listener alive(socket);
    CHECK(cli::look_for_agent(socket));
  }
  const auto dead = cli::look_for_agent(socket);
  REQUIRE_FALSE(dead);
  CHECK(dead.error().code == errc::unavailable);
  CHECK_THAT(dead.error().text, ContainsSubstring("has ended"));
}

TEST_CASE("a relative runtime directory is resolved against the working directory") {
  CHECK(cli::admin_socket("x/y") == std::filesystem::current_path().string() + "/x/y/admin.sock");
}

TEST_CASE("a runtime directory whose path is too long for a socket is refused") {
  const auto found = cli::look_for_agent(cli::admin_socket("/" + std::string(200, 'x')));
  REQUIRE_FALSE(found);
  CHECK(found.error().code == errc::invalid_argument);
}

TEST_CASE("`corbd fail` without --yes-really refuses to give the volume up, and names the flag and EIO") {
  const test::Folder folder;
  const Listener agent(cli::admin_socket(folder.path()));
  const auto answer = test::answer_to({"fail", "v1", "--runtime-dir", folder.path()});
  CHECK(answer.code == 1);
  CHECK_THAT(answer.problems, ContainsSubstring("v1"));
  CHECK_THAT(answer.problems, ContainsSubstring("EIO"));
  CHECK_THAT(answer.problems, ContainsSubstring("--yes-really"));
}

TEST_CASE("the error of a nested command begins with its full name, as in `corbd fence ls`") {
  const test::Folder folder;
  const auto answer = test::answer_to(
      {"fence", "ls", "--cluster", "c", "--user", "u", "--key-file", "k", "--runtime-dir", folder.path()});
  CHECK(answer.code == 3);
  CHECK(answer.problems.starts_with("corbd fence ls: "));
}

TEST_CASE("a command that needs a volume ID is refused as wrong usage without one") {
  for (const char* name : {"volume", "fail"}) CHECK(test::answer_to({name}).code == cli::kWrongUsage);
}
