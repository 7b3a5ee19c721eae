#include "corbd/core/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <ctime>

namespace corbd::log {
namespace {

std::string timestamp() {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const auto micros = duration_cast<microseconds>(now.time_since_epoch()).count() % 1'000'000;
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec, micros);
}

spdlog::logger& logger() {
  static const auto made = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    auto log = std::make_shared<spdlog::logger>("corbd", sink);
    log->set_pattern("%v");
    log->set_level(spdlog::level::info);
    log->set_error_handler([](const std::string&) {});  // a closed stderr must not end the agent
    return log;
  }();
  return *made;
}

spdlog::level::level_enum spd(Level level) {
  switch (level) {
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warning: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::string_view text(Level level) {
  switch (level) {
    case Level::debug: return "debug";
    case Level::info: return "info";
    case Level::warning: return "warning";
    case Level::error: return "error";
  }
  return "error";
}

}  // namespace

void set_level(Level level) { logger().set_level(spd(level)); }

void write(Level level, std::string_view message, std::initializer_list<Field> fields) {
  if (!logger().should_log(spd(level))) return;
  boost::json::object line;
  line["ts"] = timestamp();
  line["level"] = text(level);
  line["msg"] = message;
  for (const auto& field : fields) line[field.name] = field.value;
  logger().log(spd(level), "{}", boost::json::serialize(line));
}

}  // namespace corbd::log
