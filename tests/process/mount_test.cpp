// `corbd mount` and its relatives as processes, against a plugin that is not ours, and against an agent that runs
// alone.
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <boost/json/parse.hpp>
#include <future>
#include <sstream>

#include "agent.hpp"
#include "support/helpers.hpp"
#include "support/places.hpp"
#include "unit/host/ground.hpp"
#include "unit/manager/scripted_plugin.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

struct Said {
  int code = -1;
  std::string out, problems;
};

/// A host with a Ceph configuration, a keyring, and a folder to mount on.
class Host {
 public:
  Host() {
    for (const char* name : {"srv", "mounts.d"}) fs::create_directory(at(name));
    std::ofstream(at("ceph.conf")) << "[global]\nfsid = f-1\nmon_host = 127.0.0.1:1\n";
    std::ofstream(at("keyring")) << "[client.admin]\nkey = AQDgkbRgAAAAABAAJVPQ6ZEwp8lyJcFtkAqzhg==\n";
  }
  ~Host() {
    for (const auto& target : test::mount_targets_below(ground_.at(""))) ::umount2(target.c_str(), MNT_DETACH);
  }
  std::string at(const std::string& name) const { return ground_.at(name); }
  std::string target() const { return at("srv") + "/db"; }
  const Ground& ground() const { return ground_; }

  pid_t start(std::vector<std::string> words) const {
    words.insert(words.begin(), corbd_program());
    for (const auto& [option, value] : std::vector<std::pair<std::string, std::string>>{
             {"--root", at("root")}, {"--runtime-dir", at("runtime")}, {"--endpoint", "unix://" + at("csi.sock")}}) {
      words.push_back(option);
      words.push_back(value);
    }
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string out = at("out"), problems = at("problems");
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    ::dup2(::open(problems.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    ::execv(corbd_program().c_str(), argv.data());
    ::_exit(126);
  }
  Said end(pid_t pid) const {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ground_.read("out"), ground_.read("problems")};
  }
  Said run(std::vector<std::string> words) const { return end(start(std::move(words))); }
  std::string help(const std::string& command) const {
    const std::string line = corbd_program() + " " + command + " --help > " + at("help");
    REQUIRE(std::system(line.c_str()) == 0);
    return ground_.read("help");
  }
  std::vector<std::string> mount_words() const {
    return {"mount", "rbd/db", target(), "--conf", at("ceph.conf"), "--keyring", at("keyring")};
  }
  std::string state() const {
    const auto said = run({"mounts", "-o", "json"});
    REQUIRE(said.code == 0);
    const auto rows = boost::json::parse(said.out).at("mounts").as_array();
    return rows.empty() ? "nothing" : std::string(rows.at(0).at("state").as_string());
  }

 private:
  Ground ground_;
};

}  // namespace

TEST_CASE("corbd mount mounts, corbd mounts shows it, corbd unmount leaves the folder and what the image held") {
  if (!may_mount()) return;
  const Host host;
  ScriptedPlugin plugin(host.at("csi.sock"), true);
  fs::create_directory(host.target());
  const auto mounted = host.run(host.mount_words());
  CAPTURE(mounted.problems);
  REQUIRE(mounted.code == 0);
  CHECK(mounted.out == "rbd/db is mounted at " + host.target() + "\n");
  CHECK_THAT(mounted.problems, ContainsSubstring("staging volume db"));
  const auto staged = plugin.last(&ScriptedPlugin::staged);
  CHECK(staged.volume_context().at("clusterID") == "f-1");
  CHECK(staged.secrets().at("userID") == "admin");
  CHECK(host.state() == "mounted");
  std::ofstream(host.target() + "/data") << "x";
  CHECK(host.run(host.mount_words()).code == 0);
  CHECK(fs::exists(host.target() + "/data"));
  const auto unmounted = host.run({"unmount", host.target()});
  CAPTURE(unmounted.problems);
  CHECK(unmounted.code == 0);
  CHECK(fs::is_directory(host.target()));
  CHECK(fs::is_empty(host.target()));
  CHECK(host.state() == "nothing");
  const auto again = host.run({"unmount", host.target()});
  CHECK(again.code == 1);
  CHECK_THAT(again.problems, ContainsSubstring("nothing was mounted at " + host.target()));
}

TEST_CASE("a mount without a filesystem type accepts what is mounted there, and another type is refused",
          "[failure:254]") {
  if (!may_mount()) return;
  const Host host;
  ScriptedPlugin plugin(host.at("csi.sock"), true);
  const auto as = [&](const std::string& type) {
    auto words = host.mount_words();
    words.insert(words.end(), {"--fstype", type});
    return words;
  };
  REQUIRE(host.run(as("ext4")).code == 0);
  const auto unnamed = host.run(host.mount_words());
  CAPTURE(unnamed.problems);
  CHECK(unnamed.code == 0);
  CHECK(host.run(as("xfs")).code == 1);
  CHECK(host.run({"unmount", host.target()}).code == 0);
}

TEST_CASE("corbd expand grows a mount to its image's size, prints it, and refuses a folder without a mount") {
  if (!may_mount()) return;
  const Host host;
  ScriptedPlugin plugin(host.at("csi.sock"), true);
  const auto nothing = host.run({"expand", host.target()});
  CHECK(nothing.code == 1);
  CHECK_THAT(nothing.problems, ContainsSubstring("nothing was mounted at " + host.target()));
  REQUIRE(host.run(host.mount_words()).code == 0);
  plugin.size = std::int64_t{3} << 30;
  const auto expanded = host.run({"expand", host.target()});
  CAPTURE(expanded.problems);
  CHECK(expanded.code == 0);
  CHECK(expanded.out == host.target() + " has 3 GiB\n");
  CHECK(plugin.last(&ScriptedPlugin::expanded).volume_path() == host.target());
  CHECK(host.run({"unmount", host.target()}).code == 0);
}

TEST_CASE("no key of a mount is on disk, in the output, or in the arguments") {
  if (!may_mount()) return;
  const Host host;
  ScriptedPlugin plugin(host.at("csi.sock"), true);
  const auto mounted = host.run(host.mount_words());
  REQUIRE(mounted.code == 0);
  CHECK((mounted.out + mounted.problems).find("AQDgkbRg") == std::string::npos);
  for (const auto& entry : fs::recursive_directory_iterator(host.at("root")))
    if (entry.is_regular_file()) CHECK(read_file(entry.path(), 1 << 20)->find("AQDgkbRg") == std::string::npos);
}

TEST_CASE("corbd mount without an agent ends with a code of its own, and with --wait waits for one") {
  if (!may_mount()) return;
  const Host host;
  const auto refused = host.run(host.mount_words());
  CHECK(refused.code == 3);
  CHECK_THAT(refused.problems, ContainsSubstring("corbd run --standalone"));
  CHECK(host.state() == "nothing");
  auto words = host.mount_words();
  words.push_back("--wait");
  const pid_t waiting = host.start(words);
  std::this_thread::sleep_for(300ms);
  ScriptedPlugin plugin(host.at("csi.sock"), true);
  CHECK(host.end(waiting).code == 0);
}

TEST_CASE("an interrupted mount leaves nothing mounted that it mounted") {
  if (!may_mount()) return;
  const Host host;
  ScriptedPlugin plugin(host.at("csi.sock"), true);
  std::promise<void> inside;
  plugin.say([&](const std::string& call, grpc::ServerContext& context) -> std::optional<grpc::Status> {
    if (call != "publish") return std::nullopt;
    inside.set_value();
    while (!context.IsCancelled()) std::this_thread::sleep_for(1ms);
    return grpc::Status::CANCELLED;
  });
  const pid_t pid = host.start(host.mount_words());
  inside.get_future().wait();
  ::kill(pid, SIGINT);
  const auto said = host.end(pid);
  CHECK(said.code == 1);
  CHECK(host.state() == "nothing");
  const auto calls = plugin.calls();
  CHECK(std::ranges::count(calls, "unstage") == 1);
  CHECK_FALSE(fs::exists(host.at("root") + "/staging/default"));
}

TEST_CASE(
    "mount --all after a reboot restores files and claims, finishes half-done mounts, and names the invalid file") {
  if (!may_mount()) return;
  const Host host;
  ScriptedPlugin plugin(host.at("csi.sock"), true);
  REQUIRE(host.run(host.mount_words()).code == 0);
  const std::string claimed =
      boost::json::parse(host.run({"mounts", "-o", "json"}).out).at("mounts").at(0).at("staging").as_string().c_str();
  // A reboot takes every mount, and no file.
  REQUIRE(::umount(host.target().c_str()) == 0);
  REQUIRE(::umount(claimed.c_str()) == 0);
  fs::remove(host.target());
  CHECK(host.state() == "unmounted");
  const std::string more = host.at("srv") + "/more";
  std::ofstream(host.at("mounts.d") + "/more.conf")
      << "image = ssd/more\ndir = " << more << "\nconf = " << host.at("ceph.conf")
      << "\nkeyring = " << host.at("keyring") << "\n";
  const auto all = host.run({"mount", "--all", "--mounts-dir", host.at("mounts.d")});
  CAPTURE(all.problems);
  CHECK(all.code == 0);
  CHECK(host.state() == "mounted");
  CHECK_THAT(all.out, ContainsSubstring("ssd/more is mounted at " + more));
  // A file that was edited counts from the next boot on.
  REQUIRE(::umount(more.c_str()) == 0);
  std::ofstream(host.at("mounts.d") + "/more.conf", std::ios::app) << "options = noatime\n";
  CHECK(host.run({"mount", "--all", "--mounts-dir", host.at("mounts.d")}).code == 0);
  CHECK(plugin.last(&ScriptedPlugin::staged).volume_capability().mount().mount_flags_size() == 1);
  std::ofstream(host.at("mounts.d") + "/bad.conf") << "image = x\n";
  const auto bad = host.run({"mount", "--all", "--mounts-dir", host.at("mounts.d")});
  CHECK(bad.code == 1);
  CHECK_THAT(bad.problems, ContainsSubstring("bad.conf"));
  CHECK(host.run({"unmount", more}).code == 0);
  CHECK(host.run({"unmount", host.target()}).code == 0);
}

TEST_CASE("unmount --all waits for a mount's users, and mount --all mounts again what it unmounted") {
  if (!may_mount()) return;
  const Host host;
  ScriptedPlugin plugin(host.at("csi.sock"), true);
  REQUIRE(host.run(host.mount_words()).code == 0);
  Fd open(::open((host.target() + "/open").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const auto stays = host.run({"unmount", "--all", "--timeout", "5"});
  CHECK(stays.code == 1);
  CHECK_THAT(stays.problems, ContainsSubstring(host.target() + ": ") && ContainsSubstring("in use"));
  CHECK(host.state() == "mounted");
  const pid_t waiting = host.start({"unmount", "--all"});
  std::this_thread::sleep_for(500ms);
  open = Fd();
  CHECK(host.end(waiting).code == 0);
  CHECK(host.state() == "unmounted");
  CHECK(host.run({"mount", "--all", "--mounts-dir", host.at("mounts.d")}).code == 0);
  CHECK(host.state() == "mounted");
  CHECK(host.run({"unmount", host.target()}).code == 0);
}

TEST_CASE("contradictory arguments are refused with valid ones") {
  const Host host;
  const auto nothing = host.run({"unmount"});
  CHECK(nothing.code == 64);
  CHECK_THAT(nothing.problems, ContainsSubstring("--all"));
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"mount", "--all", "rbd/db", "/srv/db"}, {"mount", "--all", "rbd/db"}, {"unmount", "--all", "/srv/db"}}) {
    const auto both = host.run(words);
    CHECK(both.code == 64);
    CHECK_THAT(both.problems, ContainsSubstring("--all takes"));
  }
}

TEST_CASE("mount --all makes one mount of a folder, however its file writes it") {
  if (!may_mount()) return;
  const Host host;
  ScriptedPlugin plugin(host.at("csi.sock"), true);
  REQUIRE(host.run(host.mount_words()).code == 0);
  fs::create_directory_symlink(host.at("srv"), host.at("link"));
  for (const std::string& dir : {host.target() + "/", host.at("link") + "/db"}) {
    std::ofstream(host.at("mounts.d") + "/db.conf")
        << "image = rbd/db\ndir = " << dir << "\nconf = " << host.at("ceph.conf")
        << "\nkeyring = " << host.at("keyring") << "\n";
    const auto all = host.run({"mount", "--all", "--mounts-dir", host.at("mounts.d")});
    CAPTURE(dir, all.problems);
    CHECK(all.code == 0);
    CHECK(all.out == "rbd/db is mounted at " + host.target() + "\n");
  }
}

TEST_CASE("mount --all has one limit, and names the mounts that it did not begin") {
  if (!may_mount()) return;
  const Host host;
  ScriptedPlugin plugin(host.at("csi.sock"), true);
  plugin.say([](const std::string& call, grpc::ServerContext& context) -> std::optional<grpc::Status> {
    while (call == "stage" && !context.IsCancelled()) std::this_thread::sleep_for(1ms);
    return std::nullopt;
  });
  for (const char* name : {"a", "b"})
    std::ofstream(host.at("mounts.d") + "/" + name + ".conf")
        << "image = " << name << "\ndir = " << host.at("srv") << "/" << name << "\nconf = " << host.at("ceph.conf")
        << "\nkeyring = " << host.at("keyring") << "\n";
  const auto begin = std::chrono::steady_clock::now();
  const auto all =
      host.run({"mount", "--all", "--mounts-dir", host.at("mounts.d"), "--parallel", "1", "--timeout", "3"});
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
  CHECK(all.code == 1);
  CHECK_THAT(all.problems, ContainsSubstring("b.conf: it did not begin within --timeout"));
}

TEST_CASE("a second image of the same name in another pool or cluster is refused") {
  if (!may_mount()) return;
  const Host host;
  ScriptedPlugin plugin(host.at("csi.sock"), true);
  REQUIRE(host.run(host.mount_words()).code == 0);
  auto words = host.mount_words();
  words[1] = "ssd/db";
  words[2] = host.at("srv") + "/other";
  const auto refused = host.run(words);
  CHECK(refused.code == 1);
  CHECK_THAT(refused.problems, ContainsSubstring("rbd/db is mounted at " + host.target()));
  for (const auto& more : std::vector<std::vector<std::string>>{{"--cluster", "b"}, {"--attribute", "pool=ssd"}}) {
    words = host.mount_words();
    words[2] = host.at("srv") + "/other";
    words.insert(words.end(), more.begin(), more.end());
    CHECK(host.run(words).code == 1);
  }
  CHECK(std::ranges::count(plugin.calls(), "publish") == 1);
}

TEST_CASE(
    "a standalone agent serves its socket without kubelet, and a mount without monitors fails and leaves nothing") {
  if (!may_mount()) return;
  const Host host;
  Agent::Options options;
  options.kubelet = "/";
  options.more = {"--standalone", "--ceph-conf", host.at("ceph.conf")};
  fs::remove(host.at("config") + "/config.json");
  const Agent agent(host.ground(), options);
  auto words = host.mount_words();
  words.insert(words.end(), {"--wait", "--timeout", "8"});
  const auto said = host.run(words);
  CAPTURE(said.problems, agent.log());
  CHECK(said.code == 1);
  CHECK_THAT(said.problems, ContainsSubstring("the agent's log say what it waits for"));
  CHECK(host.state() == "nothing");
  CHECK_FALSE(fs::exists(host.target()));
}

TEST_CASE("the systemd units use only options that the program has") {
  const Host host;
  int found = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(tests_folder()).parent_path() / "deploy/systemd")) {
    std::ifstream unit(entry.path());
    for (std::string line; std::getline(unit, line);) {
      const std::string program = "=/usr/bin/corbd ";
      const auto at = line.find(program);
      if (!line.starts_with("Exec") || at == std::string::npos) continue;
      std::istringstream words(line.substr(at + program.size()));
      std::string command;
      words >> command;
      const auto help = host.help(command);
      for (std::string word; words >> word;) {
        if (!word.starts_with("--")) continue;
        CAPTURE(line, word);
        CHECK_THAT(help, ContainsSubstring(word.substr(0, word.find('='))));
        ++found;
      }
    }
  }
  CHECK(found == 11);
}
