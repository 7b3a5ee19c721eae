// Implements ops::check_unused and ops::tune.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "failure.hpp"
#include "ops.hpp"

namespace corbd::host::ops {
namespace {

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

// Returns "none" of "mq-deadline [none]"; a kernel without schedulers has "none" alone.
std::string chosen(const std::string& schedulers) {
  const auto open = schedulers.find('[');
  const auto close = schedulers.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return schedulers;
  return schedulers.substr(open + 1, close - open - 1);
}

struct Queue {
  const std::string folder;
  const NumberUse use;
  result<std::string> read(std::string_view name) const { return read_attribute(folder + "/" + std::string(name)); }
};

/// Required value of a queue attribute; nothing: any value is fine.
using Wanted = result<std::optional<std::string>>;

Wanted smallest(const Queue& queue) {
  const auto limit = queue.read("max_hw_sectors_kb");
  if (!limit) return limit.error();
  return std::optional(std::to_string(std::min(kMaxSectorsKb, number(*limit).value_or(kMaxSectorsKb))));
}

Wanted no_scheduler(const Queue&) { return std::optional<std::string>("none"); }

/// Without this a flush would end without the server's answer. From Linux 6.11 on the attribute outlives the driver's
/// own settings.
Wanted write_cache(const Queue& queue) {
  return queue.use.flush ? std::optional<std::string>("write back") : std::nullopt;
}

/// Zero switches discards off; any other limit only makes them smaller.
Wanted discards(const Queue& queue) {
  const auto limit = queue.read("discard_max_hw_bytes"), now = queue.read("discard_max_bytes");
  if (!limit || !now || *now != "0" || *limit == "0") return std::optional<std::string>();
  return std::optional(*limit);
}

/// A write in flight at a crash waits this long before it is sent again.
Wanted resend_timer(const Queue&) { return std::optional<std::string>("1000"); }

struct QueueAttribute {
  std::string_view name;
  Wanted (*wanted)(const Queue&);
};
/// Attributes that a number keeps from its last user, and that corbd relies on (docs/devices.md#numbers). The last row
/// is written last: its value shows that the rest is done.
constexpr std::array kQueueAttributes{
    QueueAttribute{"max_sectors_kb", smallest}, QueueAttribute{"scheduler", no_scheduler},
    QueueAttribute{"write_cache", write_cache}, QueueAttribute{"discard_max_bytes", discards},
    QueueAttribute{"io_timeout", resend_timer},
};

result<> set_attribute(const Queue& queue, const QueueAttribute& attribute) {
  const auto wanted = attribute.wanted(queue);
  if (!wanted) return wanted.error();
  if (!*wanted) return {};
  const auto current = queue.read(attribute.name);
  if (!current) return current.error();
  const bool choice = attribute.name == "scheduler";
  return set_attribute(queue.folder + "/" + std::string(attribute.name), choice ? chosen(*current) : *current,
                       **wanted);
}

/// The kernel stores the flag of BLKROSET with the number, apart from the driver's own flag.
result<> set_read_only(const std::string& folder, const std::string& node, bool wanted) {
  const auto is_right = [&]() -> result<bool> {
    const auto now = read_attribute(folder + "/ro");
    if (!now) return now.error();
    return (*now == "1") == wanted;
  };
  auto right = is_right();
  if (!right) return right.error();
  if (*right) return {};
  const Fd fd(::open(node.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return failure("opening " + node + " to set whether it is read-only", errno);
  const int flag = wanted ? 1 : 0;
  const int failed = ::ioctl(fd.get(), BLKROSET, &flag) == 0 ? 0 : errno;
  right = is_right();
  if (!right) return right.error();
  if (*right) return {};
  return Error{errc::failed_precondition,
               node +
                   (wanted ? " takes writes, and its volume is read-only: run `blockdev --setro "
                           : " is read-only, as an earlier user of its number left it, and its volume is writable: "
                             "run `blockdev --setrw ") +
                   node + "`" + (failed == 0 ? "" : std::string(" (") + std::strerror(failed) + ")")};
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

result<> tune(const std::string& folder, const std::string& node, NumberUse use) {
  auto flagged = set_read_only(folder, node, use.read_only);
  const Queue queue{folder + "/queue", use};
  for (const auto& attribute : kQueueAttributes)
    if (auto set = set_attribute(queue, attribute); !set) return set;
  return flagged;
}

}  // namespace corbd::host::ops
