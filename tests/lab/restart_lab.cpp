// How long a write waits when the agent is killed beside a keeper, and while agents hand over one after the other.
// Agent and keeper are the real program on a real cluster. There is no kernel driver: threads play the kernel at the
// other ends of the links, and a folder of files plays sysfs.
#include <sched.h>
#include <sys/mount.h>

#include <boost/json/parse.hpp>
#include <fstream>
#include <set>

#include "corbd/plan/record.hpp"
#include "kernel_ends.hpp"
#include "support/places.hpp"

using namespace corbd;
using namespace corbd::lab;

namespace {

constexpr int kKills = 7, kHandovers = 100, kVolumes = 4;

std::int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

void write_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

template <class T>
T median_of(std::vector<T> all) {
  std::ranges::sort(all);
  return all.at(all.size() / 2);
}

/// `corbd run` in a mount namespace whose /sys/block has only the devices of `dir`.
class Process {
 public:
  Process(const std::string& dir, const std::vector<std::string>& flags) : log_(dir + "/agent.log") {
    std::vector<std::string> words{test::corbd_program(),
                                   "run",
                                   "--nodeid",
                                   "lab",
                                   "--standalone",
                                   "--drivername",
                                   "lab",
                                   "--endpoint",
                                   "unix://" + dir + "/csi.sock",
                                   "--state-dir",
                                   dir + "/state",
                                   "--runtime-dir",
                                   dir + "/runtime",
                                   "--config-dir",
                                   dir + "/config",
                                   "--verbose"};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string block = dir + "/block";
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Fd log(::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
    ::dup2(log.get(), 2);
    if (::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        ::mount(block.c_str(), "/sys/block", nullptr, MS_BIND, nullptr) == 0)
      ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ~Process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    static_cast<void>(wait());
  }
  /// For its end.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// The keeper's agent; 0 while there is none.
  pid_t agent() const {
    const std::string id = std::to_string(pid_);
    pid_t found = 0;
    std::ifstream("/proc/" + id + "/task/" + id + "/children") >> found;
    return found;
  }
  /// When the log first said so after `from`.
  std::optional<std::int64_t> said(const std::string& what, std::int64_t from) const {
    std::ifstream file(log_);
    for (std::string line; std::getline(file, line);) {
      boost::system::error_code failed;
      const auto entry = boost::json::parse(line, failed);
      if (failed || entry.at("msg").as_string() != what) continue;
      if (const auto at = time_of(entry.at("ts").as_string().c_str()); at >= from) return at;
    }
    return std::nullopt;
  }
  /// The same, with patience.
  std::optional<std::int64_t> says(const std::string& what, std::int64_t from = 0) const {
    for (int i = 0; i < 600; ++i) {
      if (const auto at = said(what, from)) return at;
      std::this_thread::sleep_for(50ms);
    }
    return std::nullopt;
  }

 private:
  /// 2026-11-24T03:42:26.123456Z
  static std::int64_t time_of(const char* text) {
    tm when{};
    const char* rest = ::strptime(text, "%Y-%m-%dT%H:%M:%S", &when);
    const double fraction = rest == nullptr ? 0 : std::strtod(rest, nullptr);
    return std::int64_t{::timegm(&when)} * 1'000'000 + static_cast<std::int64_t>(fraction * 1e6);
  }
  const std::string log_;
  pid_t pid_ = -1;
};

/// What the real agent reads of a node.
void furnish(const std::string& dir, const device::Seen& seen) {
  const std::string device = dir + "/block/nbd" + std::to_string(seen.index);
  write_file(device + "/backend", seen.backend + "\n");
  write_file(device + "/pid", "1\n");
  write_file(device + "/dev", "43:" + std::to_string(seen.dev_minor) + "\n");
  write_file(device + "/size", std::to_string(seen.size / 512) + "\n");
  write_file(device + "/queue/io_timeout", "1000\n");
  std::filesystem::create_directories(device + "/holders");
  write_file(dir + "/config/config.json", R"([{"clusterID": "lab", "monitors": [")" + env("CORBD_LAB_MON") + R"("]}])");
}

/// Serves the volumes, and gives them to the next agent that asks.
class Before {
 public:
  Before(const std::string& dir, KernelEnds& kernel, const std::vector<std::string>& ids)
      : node_(dir, kernel, false),
        gate_(plane().io.get_executor(), *plane().clock),
        giver_(plane().io.get_executor(), *plane().clock, dir + "/runtime",
               {"lab", plan::record_version, handover::identity(dir + "/state")}) {
    REQUIRE(plane().run(plane().shell.start()));
    std::vector<plan::Staged> wishes;
    for (const auto& id : ids) wishes.push_back(staged(id));
    plane().stage(wishes);
    for (const auto& seen : plane().devices->seen) furnish(dir, seen);
    auto lock = lock_folder(dir + "/state");
    REQUIRE(lock);
    lock_ = std::move(*lock);
    REQUIRE(giver_.start([this] { gate_.spawn(give()); }));
    gate_.spawn(giver_.run());
    serves_ = std::thread([this] { plane().run_until([this] { return given_.has_value(); }); });
  }
  result<std::size_t> wait() {
    serves_.join();
    giver_.leave();
    plane().run_until([this] { return giver_.quiet() && gate_.count() == 0; });
    lock_.reset();
    return *given_;
  }

 private:
  ControlPlane& plane() { return node_.plane; }
  task<> give() { given_ = co_await hand_over(plane(), giver_, lock_); }
  Node node_;
  Gate gate_;
  handover::Giver giver_;
  Fd lock_;
  std::optional<result<std::size_t>> given_;
  std::thread serves_;
};

/// A node with volumes, whose first agent ends once the next one has asked.
struct Restarts {
  explicit Restarts(int volumes) {
    for (int number = 0; number < volumes; ++number) {
      ids.push_back("kept-" + std::to_string(::getpid()) + "-" + std::to_string(number));
      admin.create(ids.back());
    }
    std::filesystem::create_directory_symlink(memory.path(), folder.path() + "/runtime");
    first = std::make_unique<Before>(folder.path(), kernel, ids);
    for (const auto& id : ids) writers.push_back(std::make_unique<Writer>(kernel.at(id).get()));
  }
  /// The next agent has all volumes.
  std::unique_ptr<Process> take_over(std::vector<std::string> flags) {
    flags.push_back("--handover");
    auto next = std::make_unique<Process>(folder.path(), flags);
    const auto given = first->wait();
    REQUIRE(given);
    REQUIRE(*given == ids.size());
    REQUIRE(next->says("agent.started"));
    return next;
  }
  /// Another agent has them, which `serving` gave them to.
  void hand_on(std::unique_ptr<Process>& serving, std::vector<std::string> flags) {
    flags.push_back("--handover");
    const auto begun = now_us();
    auto next = std::make_unique<Process>(folder.path(), flags);
    REQUIRE(serving->wait() == 0);
    serving = std::move(next);
    REQUIRE(serving->says("agent.started", begun));
  }
  double take_longest_ms() {
    std::chrono::microseconds longest{0};
    for (const auto& writer : writers) longest = std::max(longest, writer->take_longest());
    return static_cast<double>(longest.count()) / 1e3;
  }
  /// Until each volume was written a few times.
  void wait_for_writes() const {
    for (const auto& writer : writers)
      for (const auto writes = writer->writes(); writer->writes() < writes + 3;) std::this_thread::sleep_for(1ms);
  }
  void check_writes() const {
    for (const auto& writer : writers) {
      CHECK(writer->stop() == 0);
      CHECK_FALSE(writer->failed());
    }
  }

  Admin admin;
  const test::Folder folder, memory{"/dev/shm"};
  std::vector<std::string> ids;
  KernelEnds kernel;
  std::unique_ptr<Before> first;
  std::vector<std::unique_ptr<Writer>> writers;
};

std::set<std::string> blocklisted() {
  Agent looks;
  const auto found = looks.run(looks.clusters->blocklist(access(), looks.in(10s)));
  REQUIRE(found);
  std::set<std::string> all;
  for (const auto& entry : found->entries) all.insert(entry.text());
  return all;
}

}  // namespace

TEST_CASE("a write goes on soon after the agent beside a keeper is killed, and no write is lost",
          "[.][keeper][failure:152]") {
  Restarts node(1);
  auto corbd = node.take_over({"--keeper"});
  const std::vector<const char*> parts{"keeper.starts_again", "cluster.connected", "incarnation.fenced", "image.opened",
                                       "volume.proven",       "image.locked",      "nbd.resumed"};
  std::map<std::string, std::vector<double>> ms;
  for (int kill = 0; kill < kKills; ++kill) {
    // A keeper waits before the second start. Each kill has a new one.
    if (kill > 0) node.hand_on(corbd, {"--keeper"});
    node.wait_for_writes();
    static_cast<void>(node.take_longest_ms());
    const auto killed = now_us();
    REQUIRE(::kill(corbd->agent(), SIGKILL) == 0);
    REQUIRE(corbd->says("nbd.resumed", killed));
    node.wait_for_writes();
    ms["first write"].push_back(node.take_longest_ms());
    for (const char* part : parts)
      if (const auto at = corbd->said(part, killed)) ms[part].push_back(static_cast<double>(*at - killed) / 1e3);
  }
  node.check_writes();
  std::printf("%d kills beside a keeper, ms after the kill (median):", kKills);
  for (const char* part : parts)
    if (ms.contains(part)) std::printf(" %s %.0f,", part, median_of(ms.at(part)));
  const auto& all = ms.at("first write");
  std::printf(" first write %.0f (%.0f to %.0f)\n", median_of(all), std::ranges::min(all), std::ranges::max(all));
}

TEST_CASE("100 handovers in a row blocklist nobody, and no write is lost", "[.][handovers][failure:150]") {
  Restarts node(kVolumes);
  const auto before = blocklisted();
  auto serving = node.take_over({});
  std::vector<double> stalls;
  for (int round = 1; round < kHandovers; ++round) {
    node.wait_for_writes();
    static_cast<void>(node.take_longest_ms());
    node.hand_on(serving, {});
    node.wait_for_writes();
    stalls.push_back(node.take_longest_ms());
  }
  std::size_t more = 0;
  for (const auto& entry : blocklisted()) more += before.contains(entry) ? 0 : 1;
  CHECK(more == 0);
  node.check_writes();
  std::printf(
      "%d handovers of %d volumes with a writer each: %zu more entries in the blocklist (%zu before); longest "
      "stall of a handover: median %.0f ms, at most %.0f ms\n",
      kHandovers, kVolumes, more, before.size(), median_of(stalls), std::ranges::max(stalls));
}
