#include "corbd/volume/stash.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cctype>
#include <cerrno>

#include "corbd/core/file.hpp"

namespace corbd::volume {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxFile = 65536;

bool same_key(std::string_view left, std::string_view right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](unsigned char one, unsigned char other) {
    return std::tolower(one) == std::tolower(other);
  });
}

const json::value* find(const json::object& object, std::string_view key) {
  const json::value* found = nullptr;
  for (const auto& entry : object)
    if (same_key(std::string_view(entry.key().data(), entry.key().size()), key)) found = &entry.value();
  return found != nullptr && found->is_null() ? nullptr : found;
}

Error corrupt(std::string why) { return {errc::state_corrupt, std::move(why)}; }

result<> read(const json::object& from, std::string_view key, std::string& into) {
  const auto* value = find(from, key);
  if (value == nullptr) return {};
  if (!value->is_string()) return corrupt("\"" + std::string(key) + "\" is not text");
  into = value->get_string();
  return {};
}

result<> read(const json::object& from, std::string_view key, bool& into) {
  const auto* value = find(from, key);
  if (value == nullptr) return {};
  if (!value->is_bool()) return corrupt("\"" + std::string(key) + "\" is neither true nor false");
  into = value->get_bool();
  return {};
}

}  // namespace

std::string stash_file(const std::string& staging_path) { return staging_path + "/image-meta.json"; }

result<> drop_stash(const std::string& staging_path) {
  const std::string file = stash_file(staging_path);
  if (::access(file.c_str(), F_OK) != 0 && errno == ENOENT) return {};
  return remove_durably(file);
}

result<std::optional<Stash>> read_stash(const std::string& staging_path) {
  const std::string file = stash_file(staging_path);
  const auto text = read_file(file, kMaxFile);
  if (!text && text.error().code == errc::not_found) return std::optional<Stash>();
  if (!text) return text.error();
  auto stash = parse_stash(*text);
  if (!stash) return with_context(file, stash.error());
  return std::optional<Stash>(std::move(*stash));
}

result<Stash> parse_stash(std::string_view text) {
  json::error_code failed;
  const auto value = json::parse(json::string_view(text.data(), text.size()), failed);
  if (failed || !value.is_object()) return corrupt("not a JSON object");
  const auto& object = value.get_object();
  Stash stash;
  for (const auto& done : {read(object, "pool", stash.pool), read(object, "radosNamespace", stash.ns), read(object, "image", stash.image),
                           read(object, "unmapOptions", stash.unmap_options), read(object, "accessType", stash.nbd),
                           read(object, "encrypted", stash.encrypted), read(object, "device", stash.device)})
    if (!done) return done.error();
  return stash;
}

}  // namespace corbd::volume
