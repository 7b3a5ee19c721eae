// Whether an rbd-nbd that runs has librbd's cache, as far as its node shows that (docs/sources.md#librbd-cache). Pure.
#include <algorithm>
#include <cctype>
#include <charconv>

#include "corbd/core/ini.hpp"
#include "corbd/core/text.hpp"
#include "moving.hpp"

namespace corbd::cli {
namespace {

Error not_known(std::string why) { return {errc::failed_precondition, std::move(why)}; }

/// In its file Ceph takes any other word for an error, and then has its default.
bool is_false(std::string_view value) {
  std::string lower(trimmed(value));
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower == "false" || lower == "0";
}

/// The option that an argument names: "rbd_cache" of "--rbd-cache=false"; empty: it names none.
std::string option_of(std::string_view argument) {
  if (!argument.starts_with('-')) return "";
  std::string name(argument.substr(argument.starts_with("--") ? 2 : 1));
  name = name.substr(0, name.find('='));
  std::ranges::replace(name, '-', '_');
  return name;
}

/// What the last argument of that name says: `--name value` or `--name=value`.
std::optional<std::string> given(const std::vector<std::string>& arguments, std::string_view option) {
  std::optional<std::string> found;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (option_of(arguments[i]) != option) continue;
    const auto equals = arguments[i].find('=');
    if (equals != std::string::npos)
      found = arguments[i].substr(equals + 1);
    else
      found = i + 1 < arguments.size() ? arguments[i + 1] : "";
  }
  return found;
}

/// Whether the last argument that names it switches the cache off. There Ceph compares letter by letter, and ignores
/// any other word. A bare name means true.
std::optional<bool> switched_off(const std::vector<std::string>& arguments) {
  std::optional<bool> off;
  for (const auto& argument : arguments) {
    if (option_of(argument) != "rbd_cache") continue;
    const auto equals = argument.find('=');
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    off = value == "false" || value == "0";
  }
  return off;
}

/// What may lead it to another file, or to another section of it.
constexpr const char* kElsewhere[] = {"c", "conf", "cluster", "n", "name"};
constexpr const char* kElsewhereByEnvironment[] = {"CEPH_ARGS=", "CEPH_CONF="};

}  // namespace

result<bool> cache_is_off(const DaemonSeen& daemon) {
  if (const auto off = switched_off(daemon.arguments)) return *off;
  for (const char* option : kElsewhere)
    if (given(daemon.arguments, option)) return not_known("rbd-nbd was started with the option " + std::string(option));
  if (!daemon.environment) return daemon.environment.error();
  for (const auto& variable : *daemon.environment)
    for (const char* name : kElsewhereByEnvironment)
      if (variable.starts_with(name)) return not_known("the environment of rbd-nbd has " + variable.substr(0, 9));
  const auto user = given(daemon.arguments, "id");
  if (!user) return not_known("rbd-nbd was started without --id");
  if (!daemon.conf) return daemon.conf.error();
  const auto value = option_for(*daemon.conf, "rbd_cache", *user);
  if (!value) return with_context("the ceph.conf of rbd-nbd", value.error());
  return *value && is_false(**value);
}

std::optional<std::chrono::system_clock::time_point> started_at(std::string_view process, std::string_view system,
                                                                long ticks) {
  // proc(5): "PID (NAME) STATE ...". The name may have any sign; the 22nd field is in clock ticks since the boot.
  constexpr std::size_t kStart = 22 - 3;
  const auto name_ends = process.rfind(") ");
  const auto boots = system.find("\nbtime ");
  if (name_ends == process.npos || boots == system.npos || ticks <= 0) return std::nullopt;
  const auto fields = pieces(process.substr(name_ends + 2), ' ');
  if (fields.size() <= kStart) return std::nullopt;
  const auto number = [](std::string_view text) {
    long long value = -1;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const long long since_boot = number(fields[kStart]), boot = number(system.substr(boots + 7));
  if (since_boot < 0 || boot < 0) return std::nullopt;
  return std::chrono::system_clock::time_point(std::chrono::seconds(boot + since_boot / ticks));
}

}  // namespace corbd::cli
