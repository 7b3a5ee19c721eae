#include "corbd/core/log.hpp"

#include <limits.h>
#include <poll.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <mutex>
#include <utility>

namespace corbd::log {
namespace {

std::string timestamp() {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const auto micros = duration_cast<microseconds>(now.time_since_epoch()).count() % 1'000'000;
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, micros);
}

std::string_view text(Level level) {
  switch (level) {
    case Level::debug:
      return "debug";
    case Level::info:
      return "info";
    case Level::warning:
      return "warning";
    case Level::error:
      return "error";
  }
  return "error";
}

std::string line_of(Level level, std::string_view message, std::initializer_list<Field> fields) {
  boost::json::object line;
  line["ts"] = timestamp();
  line["level"] = text(level);
  line["msg"] = message;
  for (const auto& field : fields) line[field.name] = field.value;
  return boost::json::serialize(line) + "\n";
}

/// As much of it as stderr takes without a wait: a pipe with room for anything has room for PIPE_BUF bytes.
std::size_t write_ready(std::string_view bytes) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    pollfd ready{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) break;
    const ssize_t took =
        ::write(STDERR_FILENO, bytes.data() + written, std::min<std::size_t>(bytes.size() - written, PIPE_BUF));
    if (took < 0 && errno == EINTR) continue;
    if (took <= 0) break;
    written += static_cast<std::size_t>(took);
  }
  return written;
}

/// Never waits for whoever reads stderr, or for its disk to have room. What was not taken is counted, and told by the
/// next line that is.
class Stderr final : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string bytes;
    if (torn_) bytes = "\n";
    if (dropped_ > 0) bytes += line_of(Level::warning, "log.dropped", {{"lines", dropped_}});
    bytes.append(message.payload.data(), message.payload.size());
    const std::size_t written = write_ready(bytes);
    if (written > 0) torn_ = bytes[written - 1] != '\n';
    dropped_ = written == bytes.size() ? 0 : dropped_ + 1;
  }
  void flush_() override {}

  bool torn_ = false;  ///< the last line ended in its middle
  std::uint64_t dropped_ = 0;
};

spdlog::logger& logger() {
  static const auto made = [] {
    auto log = std::make_shared<spdlog::logger>("corbd", std::make_shared<Stderr>());
    log->set_level(spdlog::level::info);
    log->set_error_handler([](const std::string&) {});
    return log;
  }();
  return *made;
}

spdlog::level::level_enum spd(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void set_level(Level level) { logger().set_level(spd(level)); }

void write(Level level, std::string_view message, std::initializer_list<Field> fields) {
  if (!logger().should_log(spd(level))) return;
  logger().log(spd(level), "{}", line_of(level, message, fields));
}

}  // namespace corbd::log
