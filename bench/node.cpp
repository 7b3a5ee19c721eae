#include "node.hpp"

#include <signal.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>

#include "calls.hpp"
#include "command.hpp"
#include "corbd/core/backoff.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/manager/manager.hpp"
#include "corbd/manager/plugin.hpp"
#include "cost.hpp"
#include "volumes.hpp"

namespace corbd::bench {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr int kFailed = 1, kInterrupted = 130;  // as shells have it
constexpr std::string_view kScheme = "unix://";
constexpr std::chrono::seconds kUnderWay{10};  ///< for calls when a signal comes
constexpr Backoff kRepeat{std::chrono::milliseconds(100), std::chrono::milliseconds(2000)};

struct Volume {
  manager::Mount mount;
  std::string staging;
  bool stage_begun = false, publish_begun = false;  ///< so it is to be taken down
  bool up = false;
};

double ms(duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

class Run {
 public:
  explicit Run(const NodeAsk& ask)
      : ask_(ask),
        clock_(make_real_clock(io_.get_executor())),
        driver_(ask.driver != 0 ? ask.driver : listener_of(ask.endpoint.substr(kScheme.size()))),
        signals_(io_, SIGINT, SIGTERM) {
    for (const auto& mount : ask.volumes)
      volumes_.push_back({mount, manager::staging_path(ask.root, mount.volume, mount.usage)});
    listen();
  }

  int run() {
    std::exception_ptr failed;
    asio::co_spawn(io_, all(), [&](std::exception_ptr error) {
      failed = error;
      io_.stop();
    });
    io_.run();
    if (failed) std::rethrow_exception(failed);
    write();
    if (leaving_.cancelled()) return kInterrupted;
    return command_failed_ || left_ > 0 || failures() > 0 ? kFailed : 0;
  }

 private:
  void listen() {
    signals_.async_wait([this](boost::system::error_code failed, int) {
      if (failed) return;
      if (leaving_.cancelled()) ::_exit(kInterrupted);
      std::fputs("corbd-bench: taking down what was mounted; once more ends this at once\n", stderr);
      listen();
      leaving_.cancel();
      // A volume that is to go is not given up because the bench is.
      last_moment_ = clock_->now() + ask_.taking_down;
      // A call that is left may still mount after its volume was taken down.
      clock_->schedule(clock_->now() + kUnderWay, [this] { too_long_.cancel(); });
    });
  }

  task<> all() {
    const auto info = co_await first_->info(within(ask_.one_call));
    if (!info) throw std::runtime_error("no driver answers on " + ask_.endpoint + ": " + info.error().text);
    subject_ = ask_.subject.empty() ? info->name : ask_.subject;
    std::printf("%s %s: %zu volumes, %d at once\n%s\n", info->name.c_str(), info->version.c_str(), volumes_.size(),
                ask_.at_once, Calls::title().c_str());
    const auto before = cost_of({driver_}, ask_.words);
    const auto bring_up = [this](Volume& volume) { return up(volume); };
    // The first one brings what all of them share.
    auto up_took = co_await each(0, 1, bring_up);
    const auto first = co_await settled_cost();
    up_took += co_await each(1, volumes_.size(), bring_up);
    std::size_t served = 0;
    for (const auto& volume : volumes_) served += volume.up ? 1 : 0;
    phase("up", up_took, served);
    const auto after = co_await settled_cost();
    if (!leaving_.cancelled()) co_await each(0, volumes_.size(), [this](Volume& volume) { return look(volume); });
    if (!leaving_.cancelled() && !ask_.command.empty()) co_await command();
    const auto looked = cost_of({driver_}, ask_.words);
    const auto down_took = co_await each(0, volumes_.size(), [this](Volume& volume) { return down(volume); });
    const auto gone = cost_of({driver_}, ask_.words);
    phase("down", down_took, volumes_.size() - left_);
    for (const char* name : {"stage", "publish", "stage+publish", "stats", "unpublish", "unstage"})
      if (const auto& made = calls_[name]; !made.ms.empty() || made.failures() > 0) {
        std::printf("%s\n", made.row(name).c_str());
        auto figure = made.json();
        figure["kind"] = name;
        keep(std::move(figure));
      }
    cost("before", before, 0);
    cost("first", first, volumes_.front().up ? 1 : 0);
    cost("after", after, served);
    cpu("up", after.cpu_ms - first.cpu_ms, volumes_.size() - 1);
    cpu("down", gone.cpu_ms - looked.cpu_ms, volumes_.size());
    std::printf("all %zu volumes up in %.2f s, down in %.2f s%s\n", served, ms(up_took) / 1000, ms(down_took) / 1000,
                served == volumes_.size() ? "" : "; NOT ALL were served");
    std::fflush(stdout);
  }

  // --- one volume

  task<> up(Volume& volume) {
    if (leaving_.cancelled()) co_return;
    fs::create_directories(volume.staging);
    fs::create_directories(fs::path(volume.mount.target).parent_path());
    const auto begin = clock_->now();
    volume.stage_begun = true;
    if (!co_await measured("stage", within(ask_.one_call), [&](manager::Plugin& driver, Until until) {
          return driver.stage(volume.mount, volume.staging, until);
        }))
      co_return;
    if (leaving_.cancelled()) co_return;
    volume.publish_begun = true;
    volume.up = co_await measured("publish", within(ask_.one_call), [&](manager::Plugin& driver, Until until) {
      return driver.publish(volume.mount, volume.staging, until);
    });
    if (volume.up) calls_["stage+publish"].succeeded(ms(clock_->now() - begin));
  }

  task<> look(Volume& volume) {
    if (!volume.up || leaving_.cancelled()) co_return;
    co_await measured("stats", within(ask_.one_call), [&](manager::Plugin& driver, Until until) {
      return driver.stats(volume.mount.volume.external_id, volume.mount.target, until);
    });
  }

  task<> down(Volume& volume) {
    const auto end = last_moment_.value_or(clock_->now() + ask_.taking_down);
    bool gone = true;
    if (volume.publish_begun)
      gone = co_await repeated("unpublish", end, volume.mount.target, [&](manager::Plugin& driver, Until until) {
        return driver.unpublish(volume.mount.volume.external_id, volume.mount.target, until);
      });
    if (volume.stage_begun && gone)
      gone = co_await repeated("unstage", end, volume.staging, [&](manager::Plugin& driver, Until until) {
        return driver.unstage(volume.mount.volume.external_id, volume.staging, until);
      });
    if (gone) {
      for (const auto& path : {volume.mount.target, volume.staging}) remove_folders(path, ask_.root);
      co_return;
    }
    ++left_;
    std::fprintf(stderr, "corbd-bench: volume %s is left: staged at %s, published at %s\n",
                 volume.mount.volume.external_id.c_str(), volume.staging.c_str(), volume.mount.target.c_str());
  }

  // --- calls

  using Call = std::function<task<result<>>(manager::Plugin&, Until)>;

  std::unique_ptr<manager::Plugin> connect() { return manager::connect(io_.get_executor(), *clock_, ask_.endpoint); }
  Until within(duration time) { return {clock_->now() + time, &too_long_}; }

  task<result<>> one(Call call, Until until) {
    const auto driver = connect();
    co_return co_await call(*driver, until);
  }
  task<bool> measured(std::string kind, Until until, Call call) {
    const auto begin = clock_->now();
    const auto done = co_await one(std::move(call), until);
    const auto took = clock_->now() - begin;
    if (done)
      calls_[kind].succeeded(ms(took));
    else
      calls_[kind].failed(done.error().text);
    co_return done.has_value();
  }
  /// The first try is measured. The others are there so that nothing stays at the path.
  task<bool> repeated(std::string kind, time_point end, std::string path, Call call) {
    if (co_await measured(kind, {std::min(end, clock_->now() + ask_.one_call)}, call) && !mounted(path)) co_return true;
    for (std::uint32_t attempt = 0; clock_->now() < end; ++attempt) {
      const auto rest = kRepeat.after(attempt, uniform());
      // A call at the very end would have no time.
      if (clock_->now() + rest >= end) break;
      co_await sleep_until(io_.get_executor(), *clock_, clock_->now() + rest);
      ++calls_[kind].repeats;
      if (co_await one(call, {std::min(end, clock_->now() + ask_.one_call)}) && !mounted(path)) co_return true;
    }
    co_return false;
  }
  task<Cost> settled_cost() {
    co_await sleep_until(io_.get_executor(), *clock_, clock_->now() + ask_.settle, &leaving_);
    co_return cost_of({driver_}, ask_.words);
  }
  /// Runs the work for these volumes, so many at once, and returns how long that took.
  task<duration> each(std::size_t next, std::size_t end, std::function<task<>(Volume&)> work) {
    const auto begin = clock_->now();
    Gate gate(io_.get_executor(), *clock_);
    for (int i = 0; i < ask_.at_once; ++i) gate.spawn(worker(next, end, work));
    co_await gate.close({});
    co_return clock_->now() - begin;
  }
  task<> worker(std::size_t& next, std::size_t end, const std::function<task<>(Volume&)>& work) {
    while (next < end) co_await work(volumes_[next++]);
  }

  // --- the command

  task<> command() {
    const std::string list = ask_.root + "/bench-targets";
    std::ofstream file(list);
    for (const auto& volume : volumes_)
      if (volume.up) file << volume.mount.target << "\n";
    file.close();
    ::setenv("CORBD_BENCH_TARGETS", list.c_str(), 1);
    const bool well = co_await run_command(io_.get_executor(), *clock_, ask_.command, leaving_);
    command_failed_ = !well;
    ::unlink(list.c_str());
  }

  // --- figures

  void keep(json::object figure) {
    figure["bench"] = ask_.bench;
    figure["subject"] = subject_;
    figure["volumes"] = volumes_.size();
    figure["at_once"] = ask_.at_once;
    figures_.push_back(std::move(figure));
  }
  void phase(const char* kind, duration took, std::size_t done) {
    keep({{"kind", kind}, {"s", ms(took) / 1000}, {"done", done}});
  }
  void cost(const char* when, const Cost& found, std::size_t served) {
    auto figure = json_of(found);
    figure["kind"] = "cost";
    figure["when"] = when;
    figure["served"] = served;
    keep(std::move(figure));
    std::printf("%-6s with %4zu volumes: %d processes, %d threads, RSS %ld KiB, PSS %ld KiB, %d descriptors\n", when,
                served, found.processes, found.threads, found.rss_kib, found.pss_kib, found.descriptors);
  }
  void cpu(const char* when, double ms, std::size_t volumes) {
    if (volumes == 0) return;
    const double each = ms / static_cast<double>(volumes);
    keep({{"kind", "cpu"}, {"when", when}, {"ms", each}});
    std::printf("%-6s %.2f ms of CPU a volume\n", when, each);
  }
  int failures() const {
    int sum = 0;
    for (const auto& [kind, made] : calls_) sum += made.failures();
    return sum;
  }
  void write() const {
    if (ask_.json.empty()) return;
    std::ofstream file(ask_.json);
    file << json::serialize(figures_) << "\n";
    if (!file.flush()) throw std::runtime_error("cannot write " + ask_.json);
  }

  const NodeAsk& ask_;
  asio::io_context io_{1};
  std::unique_ptr<Clock> clock_;
  /// Unused after its first call. Without any channel gRPC ends its threads, and 1.51 sometimes aborts while it does.
  const std::unique_ptr<manager::Plugin> first_ = connect();
  const pid_t driver_;
  asio::signal_set signals_;
  CancelScope leaving_;   ///< after a signal nothing new begins
  CancelScope too_long_;  ///< and a little later what is under way is left
  std::vector<Volume> volumes_;
  std::map<std::string, Calls> calls_;
  std::string subject_;
  std::optional<time_point> last_moment_;
  std::size_t left_ = 0;
  bool command_failed_ = false;
  json::array figures_;
};

}  // namespace

int node(const NodeAsk& ask) {
  if (!ask.endpoint.starts_with(kScheme)) throw std::runtime_error(ask.endpoint + " is no unix:// endpoint");
  return Run(ask).run();
}

}  // namespace corbd::bench
