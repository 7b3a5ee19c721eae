#include "corbd/core/log.hpp"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/async.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cerrno>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>

namespace corbd::log {
namespace {

namespace json = boost::json;

// Lines that wait for the reader of stderr. A slot takes about 400 bytes, used or not.
constexpr std::size_t kWaiting = 2048;

struct Name {
  Level level;
  std::string_view text;
  spdlog::level::level_enum of_spdlog;
};
constexpr Name kLevels[] = {
    {Level::debug, "debug", spdlog::level::debug},
    {Level::info, "info", spdlog::level::info},
    {Level::warning, "warning", spdlog::level::warn},
    {Level::error, "error", spdlog::level::err},
};

const Name& name_of(Level level) { return kLevels[static_cast<std::size_t>(level)]; }

/// Returns the text of a JSON object after its first brace.
std::string members(std::string_view message, std::initializer_list<Field> fields) {
  json::object object;
  object["msg"] = message;
  for (const auto& field : fields) std::visit([&](const auto& value) { object[field.name] = value; }, field.value);
  return json::serialize(object).substr(1);
}

/// One JSON object per line. members() makes its content.
class JsonLine final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& into) override {
    using namespace std::chrono;
    const auto micros = duration_cast<microseconds>(message.time.time_since_epoch()).count() % 1'000'000;
    const std::time_t seconds = system_clock::to_time_t(message.time);
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    const auto* name = std::ranges::find(kLevels, message.level, &Name::of_spdlog);
    fmt::format_to(fmt::appender(into),
                   R"({{"ts":"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z","level":"{}",{})"
                   "\n",
                   parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                   micros, name == std::end(kLevels) ? "error" : name->text,
                   std::string_view(message.payload.data(), message.payload.size()));
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonLine>(); }
};

/// Counts a line that stderr does not take. The next line that it takes gives the count.
class Stderr final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  Stderr() : base_sink(std::make_unique<JsonLine>()) {}

  /// Makes each line wait from now on until stderr has room for it. `lost`: the number of lines so far that came to no
  /// sink.
  void wait_for_room(std::function<std::size_t()> lost) {
    const std::lock_guard lock(mutex_);
    lost_ = std::move(lost);
  }
  std::size_t taken() const { return taken_; }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::size_t lost = lost_ ? lost_() : 0;
    spdlog::memory_buf_t bytes;
    if (torn_) bytes.push_back('\n');
    if (const auto dropped = dropped_ + (lost - told_lost_); dropped > 0) {
      const std::string text = members("log.dropped", {{"lines", dropped}});
      formatter_->format({{}, spdlog::level::warn, text}, bytes);
    }
    formatter_->format(message, bytes);
    const std::size_t written = put({bytes.data(), bytes.size()});
    if (written > 0) torn_ = bytes[written - 1] != '\n';
    const bool whole = written == bytes.size();
    dropped_ = whole ? 0 : dropped_ + (lost - told_lost_) + 1;
    told_lost_ = lost;
    ++taken_;
  }
  void flush_() override {}

  /// Writes as much as stderr takes. A pipe with any room has room for PIPE_BUF bytes.
  std::size_t put(std::string_view bytes) const {
    std::size_t written = 0;
    while (written < bytes.size()) {
      pollfd ready{STDERR_FILENO, POLLOUT, 0};
      const int polled = ::poll(&ready, 1, lost_ ? -1 : 0);
      if (polled < 0 && errno == EINTR) continue;
      if (polled != 1 || (ready.revents & POLLOUT) == 0) break;
      const ssize_t took =
          ::write(STDERR_FILENO, bytes.data() + written, std::min<std::size_t>(bytes.size() - written, PIPE_BUF));
      if (took < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (took <= 0) break;
      written += static_cast<std::size_t>(took);
    }
    return written;
  }

  bool torn_ = false;  ///< the last line was cut in the middle
  std::size_t dropped_ = 0, told_lost_ = 0;
  std::function<std::size_t()> lost_;
  std::atomic<std::size_t> taken_ = 0;
};

/// This is never destroyed, because its thread may wait for the reader of stderr.
struct Log {
  Log() { configure(std::make_shared<spdlog::logger>("corbd", sink)); }

  void configure(std::shared_ptr<spdlog::logger> made) {
    made->set_level(spdlog::level::info);
    made->set_error_handler([](const std::string&) {});
    logger = std::move(made);
  }

  const std::shared_ptr<Stderr> sink = std::make_shared<Stderr>();
  std::shared_ptr<spdlog::details::thread_pool> thread;
  std::shared_ptr<spdlog::logger> logger;
  std::atomic<std::size_t> given = 0;
};

Log& the_log() {
  static auto* const made = new Log;
  return *made;
}

}  // namespace

void start_thread() {
  Log& log = the_log();
  if (log.thread) return;
  // The agent's own threads handle its signals.
  const auto begins = [] {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    ::pthread_setname_np(::pthread_self(), "log");
  };
  log.thread = std::make_shared<spdlog::details::thread_pool>(kWaiting, 1, begins);
  log.sink->wait_for_room([&log] { return log.thread->overrun_counter(); });
  const auto level = log.logger->level();
  log.configure(std::make_shared<spdlog::async_logger>("corbd", log.sink, log.thread,
                                                       spdlog::async_overflow_policy::overrun_oldest));
  log.logger->set_level(level);
}

void drain(std::chrono::milliseconds at_most) {
  Log& log = the_log();
  if (!log.thread) return;
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (log.sink->taken() + log.thread->overrun_counter() < log.given && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::optional<Level> level_of(std::string_view text) {
  const auto* name = std::ranges::find(kLevels, text, &Name::text);
  return name == std::end(kLevels) ? std::nullopt : std::optional(name->level);
}

void set_level(Level level) { the_log().logger->set_level(name_of(level).of_spdlog); }

void write(Level level, std::string_view message, std::initializer_list<Field> fields) {
  Log& log = the_log();
  const auto wanted = name_of(level).of_spdlog;
  if (!log.logger->should_log(wanted)) return;
  ++log.given;
  log.logger->log(wanted, spdlog::string_view_t(members(message, fields)));
}

}  // namespace corbd::log
