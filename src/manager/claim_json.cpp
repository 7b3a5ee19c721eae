#include "claim_json.hpp"

#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

namespace corbd::manager {
namespace {

namespace json = boost::json;

constexpr std::array<std::string_view, 4> kPhases{"mounting", "mounted", "unmounting", "leaving"};

json::object texts_to_json(const Texts& texts) {
  json::object made;
  for (const auto& [key, value] : texts) made[key] = value;
  return made;
}

Texts texts_of(const json::object& from, std::string_view key) {
  Texts made;
  for (const auto& [name, value] : from.at(key).as_object()) made[name] = value.as_string();
  return made;
}

std::string text_at(const json::object& from, std::string_view key) { return std::string(from.at(key).as_string()); }

/// What was at the target before. A file's keys are of their own: an older version would make a folder of it.
std::pair<std::string_view, std::string_view> keys_before(const Claim& claim) {
  if (claim.usage.attachment == AccessType::block) return {"file_mode", "file_owner"};
  return {"folder_mode", "folder_owner"};
}

Claim claim_of(const json::object& from) {
  Claim claim;
  const std::string phase = text_at(from, "phase");
  std::size_t at = 0;
  while (kPhases.at(at) != phase) ++at;
  claim.phase = static_cast<Claim::Phase>(at);
  if (const auto* again = from.if_contains("again")) claim.again = again->as_bool();
  const auto& volume = from.at("volume").as_object();
  claim.volume = {text_at(volume, "plugin"), text_at(volume, "external_id"), text_at(volume, "namespace"),
                  text_at(volume, "name")};
  const auto& usage = from.at("usage").as_object();
  claim.usage.access_mode = text_at(usage, "access_mode");
  claim.usage.attachment = usage.at("block").as_bool() ? AccessType::block : AccessType::filesystem;
  claim.usage.read_only = usage.at("read_only").as_bool();
  claim.usage.fstype = text_at(usage, "fstype");
  for (const auto& option : usage.at("mount_options").as_array())
    claim.usage.mount_options.emplace_back(option.as_string());
  claim.user = text_at(from, "user");
  claim.staging = text_at(from, "staging");
  claim.target = text_at(from, "target");
  const auto [mode_key, owner_key] = keys_before(claim);
  if (const auto* mode = from.if_contains(mode_key)) claim.mode_before = mode->to_number<unsigned>();
  if (const auto* owner = from.if_contains(owner_key))
    claim.owner_before = {owner->at("uid").to_number<unsigned>(), owner->at("gid").to_number<unsigned>()};
  if (const auto* folder = from.if_contains("holding_folder"))
    claim.folder_before = {folder->at("inode").to_number<std::uint64_t>(),
                           folder->at("born_ns").to_number<std::int64_t>()};
  if (const auto* boot_id = from.if_contains("boot_id")) claim.boot_id = boot_id->as_string();
  if (const auto* shown = from.if_contains("shown")) claim.shown = shown->as_string();
  claim.volume_context = texts_of(from, "volume_context");
  claim.publish_context = texts_of(from, "publish_context");
  claim.notes = texts_of(from, "notes");
  return claim;
}

}  // namespace

std::string_view name(Claim::Phase phase) { return kPhases.at(static_cast<std::size_t>(phase)); }

std::string encode(const Claim& claim) {
  json::array options;
  for (const auto& option : claim.usage.mount_options) options.emplace_back(option);
  json::object made{{"version", kClaimVersion},
                    {"phase", name(claim.phase)},
                    {"volume",
                     {{"plugin", claim.volume.plugin},
                      {"external_id", claim.volume.external_id},
                      {"namespace", claim.volume.space},
                      {"name", claim.volume.name}}},
                    {"usage",
                     {{"access_mode", claim.usage.access_mode},
                      {"block", claim.usage.attachment == AccessType::block},
                      {"read_only", claim.usage.read_only},
                      {"fstype", claim.usage.fstype},
                      {"mount_options", std::move(options)}}},
                    {"user", claim.user},
                    {"staging", claim.staging},
                    {"target", claim.target},
                    {"volume_context", texts_to_json(claim.volume_context)},
                    {"publish_context", texts_to_json(claim.publish_context)},
                    {"notes", texts_to_json(claim.notes)}};
  if (claim.again) made["again"] = true;
  if (!claim.boot_id.empty()) made["boot_id"] = claim.boot_id;
  if (!claim.shown.empty()) made["shown"] = claim.shown;
  const auto [mode_key, owner_key] = keys_before(claim);
  if (claim.mode_before) made[mode_key] = *claim.mode_before;
  if (claim.owner_before)
    made[owner_key] = json::object{{"uid", claim.owner_before->uid}, {"gid", claim.owner_before->gid}};
  if (claim.folder_before)
    made["holding_folder"] =
        json::object{{"inode", claim.folder_before->inode}, {"born_ns", claim.folder_before->born_ns}};
  return json::serialize(made) + "\n";
}

result<Claim> decode(std::string_view text) {
  boost::system::error_code failed;
  const json::value value = json::parse(text, failed);
  const json::object* object = failed ? nullptr : value.if_object();
  const json::value* version = object == nullptr ? nullptr : object->if_contains("version");
  if (version == nullptr || !version->is_int64()) return Error{errc::state_corrupt, "it is not the JSON of a claim"};
  if (version->as_int64() > kClaimVersion)
    return Error{errc::state_newer, "its version is " + std::to_string(version->as_int64())};
  try {
    Claim claim = claim_of(*object);
    if (!claim.target.starts_with('/') || claim.volume.external_id.empty())
      return Error{errc::state_corrupt, "it names no target, or no volume"};
    return claim;
  } catch (const std::bad_alloc&) {
    return Error{errc::unavailable, "no memory to read a claim"};
  } catch (const std::exception& wrong) {
    return Error{errc::state_corrupt,
                 std::string("a part of the claim is missing, or of another kind: ") + wrong.what()};
  }
}

}  // namespace corbd::manager
