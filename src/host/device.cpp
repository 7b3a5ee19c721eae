// ops::check_unused and ops::tune.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "failure.hpp"
#include "ops.hpp"

namespace corbd::host::ops {
namespace {

constexpr std::string_view kIoTimeoutMs =
    "1000";  // a write in flight at a crash waits that long before it is sent again
constexpr std::uint64_t kMaxSectorsKb = 1024;

result<std::string> read_attribute(const std::string& path) {
  constexpr std::size_t page = 4096;
  auto text = read_file(path, page);
  if (!text) return Error{errc::unavailable, text.error().text};
  while (!text->empty() && (text->back() == '\n' || text->back() == ' ')) text->pop_back();
  return text;
}

// Write only what differs, because on newer kernels a write freezes the queue.
result<> set_attribute(const std::string& path, const std::string& current, std::string_view wanted) {
  if (current == wanted) return {};
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return failure("opening " + path, errno);
  if (::write(fd.get(), wanted.data(), wanted.size()) < 0)
    return failure("writing " + std::string(wanted) + " to " + path, errno);
  return {};
}

std::optional<std::uint64_t> number(const std::string& text) {
  std::uint64_t parsed = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return parsed;
}

// "mq-deadline [none]" -> "none"; a kernel without schedulers says "none" alone.
std::string chosen(const std::string& schedulers) {
  const auto open = schedulers.find('[');
  const auto close = schedulers.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return schedulers;
  return schedulers.substr(open + 1, close - open - 1);
}

result<> tune_request_size(const std::string& queue) {
  const auto limit = read_attribute(queue + "/max_hw_sectors_kb");
  if (!limit) return limit.error();
  const auto current = read_attribute(queue + "/max_sectors_kb");
  if (!current) return current.error();
  const std::uint64_t wanted = std::min(kMaxSectorsKb, number(*limit).value_or(kMaxSectorsKb));
  return set_attribute(queue + "/max_sectors_kb", *current, std::to_string(wanted));
}

}  // namespace

result<> check_unused(const std::string& device) {
  struct stat found{};
  if (::stat(device.c_str(), &found) != 0) return failure("looking at " + device, errno);
  if (!S_ISBLK(found.st_mode)) return Error{errc::invalid_argument, device + " is not a block device"};
  const Fd fd(::open(device.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC));
  if (!fd && errno == EBUSY)
    return Error{errc::in_use, device + " is mounted or claimed, maybe in another mount namespace"};
  if (!fd) return failure("opening " + device + " exclusively", errno);
  return {};
}

result<> tune(const std::string& queue) {
  const auto timeout = read_attribute(queue + "/io_timeout");
  if (!timeout) return timeout.error();
  if (auto set = tune_request_size(queue); !set) return set;
  const auto schedulers = read_attribute(queue + "/scheduler");
  if (!schedulers) return schedulers.error();
  if (auto set = set_attribute(queue + "/scheduler", chosen(*schedulers), "none"); !set) return set;
  // Write this last: whoever sees it assumes that the rest is done.
  return set_attribute(queue + "/io_timeout", *timeout, kIoTimeoutMs);
}

}  // namespace corbd::host::ops
