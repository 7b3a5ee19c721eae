#include "corbd/cephcsi/stash.hpp"

#include <boost/json/serialize.hpp>

#include "corbd/core/fields_json.hpp"
#include "corbd/core/text.hpp"

namespace corbd::cephcsi {
namespace {

constexpr fields::Manner kGo{errc::state_corrupt, true};

/// Escapes what means something in HTML, as Go's encoding/json does.
std::string escaped_as_go_does(std::string_view text) {
  std::string out;
  for (const char c : text) {
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

}  // namespace

std::string stash_file(const std::string& staging_path) { return staging_path + "/image-meta.json"; }

std::string log_to_remove(const Stash& stash, const std::string& volume_id) {
  const bool plain = stash.log_dir.starts_with('/') && volume_id.find('/') == volume_id.npos;
  return stash.nbd && plain && same_in_any_case(stash.log_strategy, "remove")
             ? stash.log_dir + "/rbd-nbd-" + volume_id + ".log"
             : "";
}

result<Stash> parse_stash(std::string_view text) { return fields::from_text<Stash>(text, "image-meta.json", kGo); }

std::int64_t stash_version(std::string_view text) {
  const auto object = fields::parse(text, "image-meta.json", kGo);
  const auto* version = object ? fields::find(*object, "Version", kGo.go) : nullptr;
  return version != nullptr && version->is_int64() ? version->get_int64() : 0;
}

std::string encode(const Stash& stash) {
  boost::json::object file{{"Version", 3}};
  for (auto& field : fields::to_json(stash)) file.emplace(field.key(), std::move(field.value()));
  return escaped_as_go_does(boost::json::serialize(file));
}

}  // namespace corbd::cephcsi
