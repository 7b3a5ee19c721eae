// Reads ceph-csi's mapOptions, and the options of rbd-nbd's command line that have a meaning here.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "corbd/cephcsi/parameters.hpp"
#include "corbd/core/text.hpp"

namespace corbd::cephcsi {
namespace {

Error bad_option(std::string text) { return {errc::invalid_argument, std::move(text)}; }

struct Option {
  std::string name;   ///< with '-'
  std::string value;  ///< "true" where there is none, as Ceph reads a bare option
};

Option option_of(std::string_view item) {
  const auto equals = item.find('=');
  Option option{std::string(trimmed(item.substr(0, equals))), "true"};
  std::replace(option.name.begin(), option.name.end(), '_', '-');
  if (equals != item.npos) option.value = trimmed(item.substr(equals + 1));
  return option;
}

result<std::uint64_t> seconds_of(const Option& option) {
  std::uint64_t seconds = 0;
  const char* end = option.value.data() + option.value.size();
  const auto read = std::from_chars(option.value.data(), end, seconds);
  constexpr std::uint64_t kYear = 366ULL * 86400;
  if (read.ec != std::errc() || read.ptr != end || seconds > kYear)
    return bad_option(option.name + " is not a number of seconds of at most a year");
  return seconds;
}

bool is_off(std::string_view value) {
  return value == "false" || value == "0" || value == "no" || value == "off" || value == "disabled";
}
bool is_on(std::string_view value) { return value == "true" || value == "1" || value == "yes" || value == "on"; }

/// Options that put a cache in between which acknowledges writes before they are stored.
bool is_cache(std::string_view name) {
  return name == "rbd-cache" || name == "rbd-rwl-enabled" || name == "rbd-plugins" ||
         name == "rbd-persistent-cache-mode" || name == "rbd-pwl-mode";
}

/// Options that the agent sets itself, because its promises rest on them, and options that tune a cache which does not
/// exist here.
bool is_ours(std::string_view name) {
  constexpr std::array<std::string_view, 4> kept{"rbd-disable-zero-copy-writes", "rbd-blocklist-on-break-lock",
                                                 "rbd-blocklist-expire-seconds", "rbd-non-blocking-aio"};
  constexpr std::array<std::string_view, 4> tunes{"rbd-cache", "rbd-persistent-cache", "rbd-rwl", "rbd-pwl"};
  return std::find(kept.begin(), kept.end(), name) != kept.end() ||
         std::any_of(tunes.begin(), tunes.end(), [&](auto prefix) { return name.starts_with(prefix); });
}

result<> read_config(const Option& option, NbdOptions& into) {
  if (is_cache(option.name)) {
    // rbd-nbd takes no other word for "no".
    if (option.name == "rbd-cache" && (option.value == "false" || option.value == "0")) into.serving.cache_off = true;
    if (is_off(option.value)) return {};
    return bad_option(option.name + " would acknowledge writes before they are stored: remove it");
  }
  // The agent has no cache. It reads this option back from librbd, to learn the setting of a later rbd-nbd
  // (image::Image::caches_before_flush).
  if (option.name == "rbd-cache-writethrough-until-flush" && (option.value == "false" || option.value == "0")) {
    into.serving.config["rbd_cache_writethrough_until_flush"] = "false";
    return {};
  }
  if (is_ours(option.name)) {
    into.ignored.push_back(option.name + ": the agent decides this itself");
    return {};
  }
  if (option.value.empty() || printable(option.value) != option.value)
    return bad_option(option.name + " has an empty or unprintable value");
  std::string name = option.name;
  std::replace(name.begin(), name.end(), '-', '_');
  into.serving.config[name] = option.value;
  return {};
}

result<> read_option(const Option& option, NbdOptions& into) {
  if (option.name == "try-netlink" || option.name == "exclusive") return {};  // these are always on
  if (option.name == "read-only") {
    into.read_only = !is_off(option.value);
  } else if (option.name == "notrim") {
    into.serving.trim = is_off(option.value);
  } else if (option.name == "quiesce") {
    if (!is_on(option.value) && !is_off(option.value))
      return bad_option("quiesce=" + printable(option.value) +
                        " is neither true nor false: write nbd:quiesce, or "
                        "nbd:quiesce=false");
    into.serving.quiesce = is_on(option.value);
  } else if (option.name == "reattach-timeout") {
    const auto seconds = seconds_of(option);
    if (!seconds) return seconds.error();
    if (*seconds > 0)
      into.serving.dead_conn_timeout_s = *seconds;
    else
      into.ignored.emplace_back("reattach-timeout=0 would turn every restart of the agent into I/O errors");
  } else if (option.name == "io-timeout") {
    const auto seconds = seconds_of(option);
    if (!seconds) return seconds.error();
    into.serving.same_timeout = *seconds == 1;
    // With a timeout the kernel would fail requests that a slow cluster still answers.
    if (*seconds > 0) into.ignored.emplace_back("io-timeout: a request waits until the cluster answers");
  } else if (printable(option.name) == option.name &&
             (option.name.starts_with("rbd-") || option.name.starts_with("debug-"))) {
    return read_config(option, into);
  } else {
    into.ignored.push_back("'" + printable(option.name) + "' is not used by this agent");
  }
  return {};
}

/// Returns `name` of "name=admin".
std::string_view name_of(std::string_view option) { return option.substr(0, option.find('=')); }

/// Options that the agent sets itself: user, key and namespace.
bool is_given(std::string_view name) {
  return name == "name" || name == "secret" || name == "key" || name == "_pool_ns" || name == "rbd_namespace";
}

}  // namespace

result<MapOptions> split_map_options(std::string_view text) {
  MapOptions options;
  for (const auto item : pieces(text, ';')) {
    if (item.empty()) continue;
    const auto colon = item.find(':');
    if (colon == item.npos) {
      options.krbd = item;
      continue;
    }
    const std::string mounter = lower(trimmed(item.substr(0, colon)));
    if (mounter == "krbd")
      options.krbd = item.substr(colon + 1);
    else if (mounter == "nbd")
      options.nbd = item.substr(colon + 1);
    else
      return bad_option("unknown mounter type '" + printable(mounter) + "': write krbd:<options>;nbd:<options>");
  }
  return options;
}

result<std::string> parse_kernel_options(std::string_view list) {
  std::string options;
  for (const auto item : pieces(list, ',')) {
    const auto option = trimmed(item);
    if (option.empty() || option == "noudev") continue;
    // The kernel takes one line of words.
    if (std::any_of(option.begin(), option.end(), [](unsigned char c) { return c <= 0x20 || c > 0x7e; }))
      return bad_option("an option of the kernel's rbd has a blank or an unprintable byte");
    if (is_given(name_of(option)))
      return bad_option("the agent itself sets the option " + std::string(name_of(option)) + ": remove it");
    options += (options.empty() ? "" : ",") + std::string(option);
  }
  return options;
}

bool kernel_read_only(std::string_view options) {
  bool found = false;
  for (const auto option : pieces(options, ',')) {
    if (option == "ro" || option == "read_only") found = true;
    if (option == "rw" || option == "read_write") found = false;
  }
  return found;
}

result<NbdOptions> parse_nbd_options(std::string_view list) {
  NbdOptions options;
  for (const auto item : pieces(list, ',')) {
    if (trimmed(item).empty()) continue;
    if (auto read = read_option(option_of(item), options); !read) return read.error();
  }
  return options;
}

}  // namespace corbd::cephcsi
