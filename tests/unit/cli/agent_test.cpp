// What is said and returned when no agent answers, and before one is asked.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <iostream>
#include <sstream>

#include "admin_socket.hpp"
#include "corbd/cli/options.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;

namespace {

/// What is written to std::cerr meanwhile.
class Said {
 public:
  Said() : old_(std::cerr.rdbuf(text_.rdbuf())) {}
  ~Said() { std::cerr.rdbuf(old_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* old_;
};

/// A listening socket, as long as it lives.
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

cli::Command parsed(std::vector<std::string> words) {
  words.insert(words.begin(), "corbd");
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  return cli::parse(static_cast<int>(arguments.size()), arguments.data(), "0");
}

}  // namespace

TEST_CASE("without an agent every question ends with 3 and names the socket and the way out") {
  const test::Folder folder;
  for (const auto what : {cli::Admin::What::status, cli::Admin::What::volumes, cli::Admin::What::events}) {
    cli::Admin ask;
    ask.what = what;
    ask.runtime_dir = folder.path();
    const Said said;
    CHECK(cli::call_admin(ask) == 3);
    CHECK_THAT(said.text(), ContainsSubstring(folder.path() + "/admin.sock"));
    CHECK_THAT(said.text(), ContainsSubstring("--runtime-dir"));
  }
}

TEST_CASE("a socket that a dead agent left is told from none and from one that answers") {
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

TEST_CASE("a relative runtime directory is taken from the working directory") {
  CHECK(cli::admin_socket("x/y") == std::filesystem::current_path().string() + "/x/y/admin.sock");
}

TEST_CASE("a runtime directory that is too long for a socket is said to be") {
  const auto found = cli::look_for_agent(cli::admin_socket("/" + std::string(200, 'x')));
  REQUIRE_FALSE(found);
  CHECK(found.error().code == errc::invalid_argument);
}

TEST_CASE("a volume is not given up before it is said to be meant") {
  const test::Folder folder;
  const Listener agent(cli::admin_socket(folder.path()));
  cli::Admin ask;
  ask.what = cli::Admin::What::fail;
  ask.runtime_dir = folder.path();
  ask.volume_id = "v1";
  const Said said;
  CHECK(cli::call_admin(ask) == 1);
  CHECK_THAT(said.text(), ContainsSubstring("v1"));
  CHECK_THAT(said.text(), ContainsSubstring("EIO"));
  CHECK_THAT(said.text(), ContainsSubstring("--yes-really"));
}

TEST_CASE("the subcommands are told apart, with their options") {
  const auto command = parsed({"volumes", "-o", "wide", "--runtime-dir", "/x"});
  const auto* volumes = std::get_if<cli::Admin>(&command);
  REQUIRE(volumes != nullptr);
  CHECK(volumes->what == cli::Admin::What::volumes);
  CHECK(volumes->output == "wide");
  CHECK(volumes->runtime_dir == "/x");
  const auto follow = parsed({"events", "-f", "-o", "json"});
  REQUIRE(std::get_if<cli::Admin>(&follow) != nullptr);
  CHECK(std::get<cli::Admin>(follow).follow);
  const auto heal = parsed({"heal"});
  REQUIRE(std::get_if<cli::Admin>(&heal) != nullptr);
  CHECK(std::get<cli::Admin>(heal).volume_id.empty());
  CHECK(std::get<cli::Admin>(heal).runtime_dir.empty());  // looked for when it is used
}

TEST_CASE("a subcommand that needs a volume refuses to go without") {
  const Said said;
  for (const char* name : {"volume", "fail"}) {
    const auto command = parsed({name});
    REQUIRE(std::get_if<cli::Exit>(&command) != nullptr);
    CHECK(std::get<cli::Exit>(command).code != 0);
  }
}
