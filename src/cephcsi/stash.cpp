#include "corbd/cephcsi/stash.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cctype>

namespace corbd::cephcsi {
namespace {

namespace json = boost::json;

constexpr const char* kAttachmentKey = "corbdAttachmentUID";

bool same_key(std::string_view left, std::string_view right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](unsigned char one, unsigned char other) { return std::tolower(one) == std::tolower(other); });
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
  if (!value->is_string()) return corrupt("\"" + std::string(key) + "\" is not a string");
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

/// As Go's encoding/json has it: what means something in HTML is escaped too.
std::string in_quotes(std::string_view text) {
  const std::string plain = json::serialize(json::string_view(text.data(), text.size()));
  std::string out;
  for (const char c : plain) {
    if (c == '<')
      out += "\\u003c";
    else if (c == '>')
      out += "\\u003e";
    else if (c == '&')
      out += "\\u0026";
    else
      out += c;
  }
  return out;
}

std::string_view truth(bool value) { return value ? "true" : "false"; }

}  // namespace

std::string stash_file(const std::string& staging_path) { return staging_path + "/image-meta.json"; }

std::string log_to_remove(const Stash& stash, const std::string& volume_id) {
  const bool plain = stash.log_dir.starts_with('/') && volume_id.find('/') == volume_id.npos;
  return stash.nbd && plain && same_key(stash.log_strategy, "remove") ? stash.log_dir + "/rbd-nbd-" + volume_id + ".log"
                                                                      : "";
}

result<Stash> parse_stash(std::string_view text) {
  boost::system::error_code failed;
  const auto value = json::parse(json::string_view(text.data(), text.size()), failed);
  if (failed || !value.is_object()) return corrupt("not a JSON object");
  const auto& object = value.get_object();
  Stash stash;
  for (const auto& done :
       {read(object, "pool", stash.pool), read(object, "radosNamespace", stash.ns), read(object, "image", stash.image),
        read(object, "unmapOptions", stash.unmap_options), read(object, "accessType", stash.nbd),
        read(object, "encrypted", stash.encrypted), read(object, "device", stash.device),
        read(object, "logDir", stash.log_dir), read(object, "logFileStrategy", stash.log_strategy),
        read(object, kAttachmentKey, stash.attachment)})
    if (!done) return done.error();
  return stash;
}

std::int64_t stash_version(std::string_view text) {
  boost::system::error_code failed;
  const auto parsed = json::parse(json::string_view(text.data(), text.size()), failed);
  const auto* value = failed || !parsed.is_object() ? nullptr : find(parsed.get_object(), "Version");
  return value != nullptr && value->is_int64() ? value->get_int64() : 0;
}

std::string encode(const Stash& stash) {
  std::string out = "{\"Version\":3,\"pool\":" + in_quotes(stash.pool) + ",\"radosNamespace\":" + in_quotes(stash.ns) +
                    ",\"image\":" + in_quotes(stash.image);
  out += ",\"unmapOptions\":" + in_quotes(stash.unmap_options);
  out.append(",\"accessType\":").append(truth(stash.nbd)).append(",\"encrypted\":").append(truth(stash.encrypted));
  out += ",\"device\":" + in_quotes(stash.device) + ",\"logDir\":" + in_quotes(stash.log_dir) +
         ",\"logFileStrategy\":" + in_quotes(stash.log_strategy);
  if (!stash.attachment.empty())
    out.append(",\"").append(kAttachmentKey).append("\":").append(in_quotes(stash.attachment));
  return out + "}";
}

}  // namespace corbd::cephcsi
