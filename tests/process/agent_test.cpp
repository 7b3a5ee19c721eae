// What befalls the agent's process itself. docs/failures.md has the number of each story.
#include "agent.hpp"

#include <grpcpp/grpcpp.h>

#include "corbd/core/file.hpp"
#include "corbd/core/utc.hpp"
#include "pluginregistration/registration.grpc.pb.h"
#include "support/eventually.hpp"
#include "support/small_disk.hpp"

#include <sys/socket.h>
#include <sys/un.h>

using namespace corbd;
using namespace std::chrono_literals;
using test::Agent;
using test::Ground;
namespace fs = std::filesystem;

namespace {

/// Connections that say nothing; they go with their object.
std::vector<Fd> connections(const std::string& path, int count) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  std::vector<Fd> made;
  for (int i = 0; i < count; ++i) {
    made.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    static_cast<void>(::connect(made.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
  }
  return made;
}

std::size_t descriptors(pid_t pid) {
  const fs::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

int threads_named(pid_t pid, const std::string& name) {
  int count = 0;
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task"))
    count += read_file(thread.path().string() + "/comm", 64).value() == name + "\n" ? 1 : 0;
  return count;
}

Agent::Options with_stderr(int fd) {
  Agent::Options options;
  options.prepare = [fd] { ::dup2(fd, STDERR_FILENO); };
  options.more = {"--verbose"};
  return options;
}

/// What kubelet is told at the socket.
pluginregistration::PluginInfo plugin_at(const std::string& socket) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + 30s);
  pluginregistration::PluginInfo info;
  const auto channel = grpc::CreateChannel("unix://" + socket, grpc::InsecureChannelCredentials());
  pluginregistration::Registration::NewStub(channel)->GetInfo(&context, pluginregistration::InfoRequest(), &info);
  return info;
}

}  // namespace

TEST_CASE("a second agent on a state directory ends and names the first, which goes on", "[failure:49]") {
  const Ground ground;
  const Agent first(ground);
  REQUIRE(first.answers());
  Agent::Options options;
  options.socket = "second.sock";
  Agent second(ground, options);
  CHECK(second.ended() == 1);
  CHECK_THAT(first.log(), ContainsSubstring("is held by the agent with pid " + std::to_string(first.pid())));
  CHECK(first.answers());
}

TEST_CASE("a second agent with a state directory of its own ends at the first one's socket", "[failure:49]") {
  const Ground ground;
  const Agent first(ground);
  REQUIRE(first.answers());
  const test::Folder state;
  Agent::Options options;
  options.state = state.path();
  Agent second(ground, options);
  CHECK(second.ended() == 1);
  CHECK_THAT(first.log(), ContainsSubstring("another process answers on"));
  CHECK(first.answers());
}

TEST_CASE("an agent with the lock waits for a dead agent's keeper that has the socket, and then listens there") {
  const Ground ground;
  Fd keeper(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ground.at("csi.sock").copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(keeper.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(keeper.get(), 16) == 0);
  const Agent agent(ground);
  const auto waits = [&] {
    return fs::exists(ground.at("log")) && agent.log().find("agent.waits") != std::string::npos;
  };
  REQUIRE(test::eventually(waits));
  keeper.reset();
  CHECK(agent.answers());
}

TEST_CASE("an agent that is killed is started again by its keeper, which ends when the agent is told to",
          "[failure:153]") {
  const Ground ground;
  Agent::Options options;
  options.more = {"--keeper"};
  Agent keeper(ground, options);
  REQUIRE(keeper.answers());
  const auto child = [&] {
    const std::string pid = std::to_string(keeper.pid());
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    pid_t found = 0;
    children >> found;
    return found;
  };
  const pid_t first = child();
  REQUIRE(first > 0);
  REQUIRE(::kill(first, SIGKILL) == 0);
  REQUIRE(test::eventually([&] { return child() != first && child() > 0; }));
  CHECK(keeper.answers());
  CHECK_THAT(keeper.log(), ContainsSubstring("keeper.starts_again"));
  REQUIRE(::kill(keeper.pid(), SIGTERM) == 0);
  CHECK(keeper.ended() == 0);
  CHECK_THAT(keeper.log(), ContainsSubstring("agent.left"));
}

TEST_CASE("a keeper ends with its agent's exit code if the agent refuses to start", "[failure:153]") {
  const Ground ground;
  const Agent first(ground);
  REQUIRE(first.answers());
  Agent::Options options;
  options.socket = "second.sock";
  options.more = {"--keeper"};
  Agent second(ground, options);
  CHECK(second.ended() == 1);
  CHECK(first.answers());
}

TEST_CASE("an agent that is started with --accept-refused says whether its time is to come, is over, or is too far") {
  const auto in = [](std::chrono::hours from_now) { return utc_text(std::chrono::system_clock::now() + from_now); };
  for (const auto& [until, said] :
       {std::pair(in(1h), "handover.accept_refused_given"), std::pair(in(-1h), "handover.accept_refused_over"),
        std::pair(in(24h * 30), "handover.accept_refused_too_far")}) {
    const Ground ground;
    Agent::Options options;
    options.more = {"--handover", "--accept-refused=" + until};
    const Agent agent(ground, options);
    REQUIRE(agent.answers());
    CHECK_THAT(agent.log(), ContainsSubstring(said));
  }
}

TEST_CASE("an agent without stdin, stdout and stderr serves, and opens none of its files under their numbers",
          "[failure:50]") {
  const Ground ground;
  Agent::Options options;
  options.prepare = [] {
    for (const int fd : {0, 1, 2}) ::close(fd);
  };
  const Agent agent(ground, options);
  REQUIRE(agent.answers());
  for (const char* fd : {"0", "1", "2"})
    CHECK(fs::read_symlink("/proc/" + std::to_string(agent.pid()) + "/fd/" + fd) == "/dev/null");
  CHECK(ground.read("state/lock") == std::to_string(agent.pid()) + "\n");
}

TEST_CASE("an agent serves while nobody reads its log, the log's reader has gone, or the log's disk is full",
          "[failure:50]") {
  const Ground ground;
  std::array<int, 2> pipe;
  REQUIRE(::pipe2(pipe.data(), O_CLOEXEC) == 0);
  Fd reader(pipe[0]), writer(pipe[1]);
  SECTION("nobody reads") {
    const Fd filler(
        ::open(("/proc/self/fd/" + std::to_string(writer.get())).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    const std::string page(4096, 'x');
    while (::write(filler.get(), page.data(), page.size()) > 0) {
    }
  }
  SECTION("no reader") { reader.reset(); }
  SECTION("a full disk") { writer = Fd(::open("/dev/full", O_WRONLY | O_CLOEXEC)); }
  const Agent agent(ground, with_stderr(writer.get()));
  CHECK(agent.answers());
}

TEST_CASE("an agent leaves no core dump unless it may, but always a backtrace") {
  const bool allowed = GENERATE(false, true);
  const Ground ground;
  const test::Folder dumps;
  Agent::Options options;
  options.prepare = [&] {
    const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_CORE, &unlimited);
    static_cast<void>(::chdir(dumps.path().c_str()));
    ::setenv("ASAN_OPTIONS", "disable_coredump=0", 1);  // otherwise it sets a limit of its own
  };
  if (allowed) options.more = {"--allow-core-dumps"};
  Agent agent(ground, options);
  REQUIRE(agent.answers());
  const auto limits = read_file("/proc/" + std::to_string(agent.pid()) + "/limits", 1 << 16);
  REQUIRE(limits);
  CHECK((limits->find("Max core file size        unlimited") != std::string::npos) == allowed);
  if (allowed) return;  // a dump of hundreds of megabytes, wherever this machine's core_pattern puts it
  ::kill(agent.pid(), SIGSEGV);
  CHECK(agent.ended() == -SIGSEGV);
  CHECK_THAT(agent.log(), ContainsSubstring("/corbd("));
  CHECK(fs::is_empty(dumps.path()));
}

TEST_CASE("an agent without a free descriptor answers again once it has one", "[failure:41]") {
  const Ground ground;
  Agent::Options options;
  options.prepare = [] {
    const rlimit few{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &few);
  };
  const Agent agent(ground, options);
  REQUIRE(agent.answers());
  {
    const auto hogs = connections(ground.at("csi.sock"), 100);
    for (int tries = 0; tries < 600 && descriptors(agent.pid()) < 64; ++tries) std::this_thread::sleep_for(20ms);
    CHECK(descriptors(agent.pid()) >= 64);
  }
  CHECK(agent.answers());
  CHECK_THAT(agent.log(), ContainsSubstring("rpc.not_accepting"));
}

TEST_CASE("an agent serves devices on --io-threads threads, and on one by default") {
  const Ground ground;
  Agent::Options options;
  const auto [more, threads] =
      GENERATE(values<std::pair<std::vector<std::string>, int>>({{{}, 1}, {{"--io-threads=3"}, 3}}));
  options.more = more;
  const Agent agent(ground, options);
  REQUIRE(agent.answers());
  CHECK(threads_named(agent.pid(), "corbd-io") == threads);
}

TEST_CASE("an agent takes as many descriptors as the system allows", "[failure:41]") {
  const Ground ground;
  Agent::Options options;
  options.prepare = [] {
    const rlimit soft{64, 2048};
    ::setrlimit(RLIMIT_NOFILE, &soft);
  };
  const Agent agent(ground, options);
  REQUIRE(agent.answers());
  rlimit now{};
  REQUIRE(::prlimit(agent.pid(), RLIMIT_NOFILE, nullptr, &now) == 0);
  CHECK(now.rlim_cur == 2048);
}

TEST_CASE("an agent starts again on a state directory that has become full", "[failure:18]") {
  const auto disk = test::SmallDisk::mount(512);
  if (!disk) return;
  const Ground ground;
  Agent::Options options;
  options.state = disk->path();
  for (const bool full : {false, true}) {
    if (full) disk->fill();
    const Agent agent(ground, options);
    CHECK(agent.answers());
  }
}

TEST_CASE("an agent does not start on a state directory that it cannot write, and says so", "[failure:19]") {
  const auto disk = test::SmallDisk::mount(512);
  if (!disk) return;
  const Ground ground;
  disk->read_only(true);
  Agent::Options options;
  options.state = disk->path();
  Agent agent(ground, options);
  CHECK(agent.ended() == 1);
  CHECK_THAT(agent.log(), ContainsSubstring(disk->path()));
  CHECK_THAT(agent.log(), ContainsSubstring("Read-only file system"));
}

TEST_CASE("an agent told to heal every volume without proof ends, and names the command for one volume") {
  const Ground ground;
  Agent::Options options;
  options.more = {"--heal-without-proof"};
  Agent agent(ground, options);
  CHECK(agent.ended() == 1);
  CHECK_THAT(agent.log(), ContainsSubstring("corbd heal ID --without-proof"));
}

TEST_CASE(
    "an agent starts on a state directory with damaged, unfinished and newer files, and sets the damaged ones aside",
    "[failure:20][failure:21]") {
  const Ground ground;
  for (const char* folder : {"state/volumes", "state/incarnations"}) fs::create_directory(ground.at(folder));
  const std::string newer = R"({"version":99,"crc32c":0,"record":{}})";
  REQUIRE(write_durably(ground.at("state/volumes/torn.json"), R"({"version":1,"crc32c":12,"rec)", 0600));
  REQUIRE(write_durably(ground.at("state/volumes/empty.json"), "", 0600));
  REQUIRE(write_durably(ground.at("state/volumes/zeroes.json"), std::string(4096, '\0'), 0600));
  REQUIRE(write_durably(ground.at("state/volumes/newer.json"), newer, 0600));
  REQUIRE(write_durably(ground.at("state/volumes/half.json.tmp"), "{", 0600));
  REQUIRE(write_durably(ground.at("state/incarnations/torn.json"), R"({"version":1,"uu)", 0600));
  const Agent agent(ground);
  REQUIRE(agent.answers());
  int aside = 0;
  for (const char* folder : {"state/volumes", "state/incarnations"})
    for (const auto& entry : fs::directory_iterator(ground.at(folder)))
      aside += entry.path().string().find(".corrupt-") != std::string::npos ? 1 : 0;
  CHECK(aside == 4);
  CHECK(ground.read("state/volumes/newer.json") == newer);
  CHECK_FALSE(fs::exists(ground.at("state/volumes/half.json.tmp")));
}

TEST_CASE("an agent registers without a flag where kubelet looks for plugins, and unregisters at its end") {
  const Ground ground;
  fs::create_directories(ground.at("kubelet/plugins_registry"));
  const std::string registration = ground.at("kubelet/plugins_registry/rbd.csi.ceph.com-reg.sock");
  Agent::Options options;
  options.socket = "kubelet/plugins/rbd.csi.ceph.com/csi.sock";
  {
    const Agent killed(ground, options);
    REQUIRE(killed.answers());
    CHECK(plugin_at(registration).endpoint() == ground.at(options.socket));
  }
  REQUIRE(fs::exists(registration));
  Agent next(ground, options);
  REQUIRE(next.answers());
  CHECK(plugin_at(registration).name() == "rbd.csi.ceph.com");
  ::kill(next.pid(), SIGTERM);
  CHECK(next.ended() == 0);
  CHECK_FALSE(fs::exists(registration));
}

TEST_CASE("an agent told to register ends if kubelet cannot find its socket, and serves without the flag") {
  const Ground ground;
  fs::create_directories(ground.at("kubelet/plugins_registry"));
  Agent::Options options;
  SECTION("with the flag") {
    options.more = {"--register"};
    Agent agent(ground, options);
    CHECK(agent.ended() == 1);
  }
  SECTION("without") {
    const Agent agent(ground, options);
    CHECK(agent.answers());
    CHECK(fs::is_empty(ground.at("kubelet/plugins_registry")));
  }
  CHECK_THAT(ground.read("log"), ContainsSubstring("--kubelet-registration-path"));
}
