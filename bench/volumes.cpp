#include "volumes.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "corbd/core/file.hpp"
#include "corbd/manager/manager.hpp"

namespace corbd::bench {
namespace {

namespace json = boost::json;

constexpr std::size_t kLongestFile = 16 << 20;

std::string text(const json::object& from, std::string_view key, const std::string& otherwise) {
  const auto* found = from.if_contains(key);
  return found == nullptr ? otherwise : std::string(found->as_string());
}

void add(manager::Texts& to, const json::object& from, std::string_view key) {
  if (const auto* found = from.if_contains(key))
    for (const auto& [name, value] : found->as_object()) to[std::string(name)] = value.as_string();
}

/// Of a list, or of a pattern and a count.
std::vector<json::object> listed(const json::value& volumes) {
  std::vector<json::object> out;
  if (const auto* list = volumes.if_array()) {
    for (const auto& one : *list) out.push_back(one.is_string() ? json::object{{"id", one}} : one.as_object());
    return out;
  }
  const std::string pattern(volumes.at("pattern").as_string());
  const auto hole = pattern.find("{}");
  if (hole == std::string::npos) throw std::runtime_error("the pattern " + pattern + " has no {}");
  for (std::int64_t number = 0; number < volumes.at("count").as_int64(); ++number)
    out.push_back({{"id", std::string(pattern).replace(hole, 2, std::to_string(number))}});
  return out;
}

manager::Mount common(const json::object& from) {
  manager::Mount made;
  add(made.volume_context, from, "volume_context");
  if (const auto* secrets = from.if_contains("secrets"))
    for (const auto& [name, value] : secrets->as_object())
      made.secrets[std::string(name)] = Secret(std::string(value.as_string()));
  if (const auto* block = from.if_contains("block"); block != nullptr && block->as_bool())
    made.usage.attachment = manager::AccessType::block;
  made.usage.fstype = text(from, "fstype", "");
  made.usage.access_mode = text(from, "access_mode", made.usage.access_mode);
  if (const auto* options = from.if_contains("mount_options"))
    for (const auto& option : options->as_array()) made.usage.mount_options.emplace_back(option.as_string());
  made.user = "bench";
  return made;
}

}  // namespace

std::vector<manager::Mount> read_volumes(const std::string& file, const std::string& root, std::size_t count) try {
  const auto said = read_file(file, kLongestFile);
  if (!said) throw std::runtime_error(said.error().text);
  const auto parsed = json::parse(*said).as_object();
  const auto all = common(parsed);
  std::vector<manager::Mount> out;
  for (const auto& one : listed(parsed.at("volumes"))) {
    if (count > 0 && out.size() == count) break;
    out.push_back(all);
    auto& mount = out.back();
    mount.volume.external_id = mount.volume.name = one.at("id").as_string();
    add(mount.volume_context, one, "volume_context");
    mount.target = manager::default_target(root, mount);
  }
  if (out.empty() || out.size() < count)
    throw std::runtime_error("it has " + std::to_string(out.size()) + " volumes, fewer than are wanted");
  return out;
} catch (const std::exception& failed) {
  throw std::runtime_error("the volumes of " + file + ": " + failed.what());
}

bool mounted(const std::string& path) {
  // Each volume makes the table longer, and this reader shares the processors of the driver that it measures.
  struct statx seen{};
  std::error_code failed;
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, 0, &seen) != 0 && errno == ENOENT)
    return false;
  if ((seen.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) return true;
  if (S_ISDIR(seen.stx_mode) && std::filesystem::is_empty(path, failed) && !failed) return false;
  const auto table = read_file("/proc/thread-self/mountinfo", std::numeric_limits<std::size_t>::max());
  if (!table) throw std::runtime_error(table.error().text);
  constexpr int kFieldsBefore = 4;
  for (std::string_view rest = *table; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    for (int field = 0; field < kFieldsBefore; ++field) line.remove_prefix(line.find(' ') + 1);
    if (!line.starts_with(path)) continue;
    line.remove_prefix(path.size());
    if (line.starts_with(' ') || line.starts_with('/')) return true;
  }
  return false;
}

void remove_folders(const std::string& path, const std::string& root) {
  for (std::filesystem::path at = path; at.native().size() > root.size(); at = at.parent_path())
    if (::rmdir(at.c_str()) != 0 && errno != ENOENT) return;
}

}  // namespace corbd::bench
