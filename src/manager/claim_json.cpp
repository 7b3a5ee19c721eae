#include "claim_json.hpp"

#include <algorithm>
#include <array>

#include "corbd/core/fields_json.hpp"

namespace corbd::manager {
namespace {

constexpr std::array<std::string_view, 4> kPhases{"mounting", "mounted", "unmounting", "leaving"};

/// Permissions and owners of what was at the target. A file's keys are of their own: an older version would make a
/// folder of it.
struct AtTarget {
  std::optional<unsigned> folder_mode, file_mode;
  std::optional<Owner> folder_owner, file_owner;
  std::optional<FolderIdentity> folder;  ///< that held it
  static constexpr std::tuple fields{
      fields::rare("folder_mode", &AtTarget::folder_mode), fields::rare("file_mode", &AtTarget::file_mode),
      fields::rare("folder_owner", &AtTarget::folder_owner), fields::rare("file_owner", &AtTarget::file_owner),
      fields::rare("holding_folder", &AtTarget::folder)};
};

AtTarget at_target(const Claim& claim) {
  if (claim.usage.attachment == AccessType::block)
    return {{}, claim.mode_before, {}, claim.owner_before, claim.folder_before};
  return {claim.mode_before, {}, claim.owner_before, {}, claim.folder_before};
}

}  // namespace
}  // namespace corbd::manager

namespace corbd::fields {

using manager::AccessType;
using manager::Claim;

template <>
struct Written<Claim::Phase> {
  static std::string to(Claim::Phase phase) { return std::string(name(phase)); }
  static result<Claim::Phase> from(const std::string& text) {
    const auto* found = std::ranges::find(manager::kPhases, text);
    if (found == manager::kPhases.end()) return Error{errc::state_corrupt, "no phase of a claim"};
    return static_cast<Claim::Phase>(found - manager::kPhases.begin());
  }
};
template <>
struct Written<AccessType> {
  static bool to(AccessType type) { return type == AccessType::block; }
  static result<AccessType> from(bool block) { return block ? AccessType::block : AccessType::filesystem; }
};

}  // namespace corbd::fields

namespace corbd::manager {

std::string_view name(Claim::Phase phase) { return kPhases.at(static_cast<std::size_t>(phase)); }

std::string encode(const Claim& claim) {
  auto made = fields::to_json(claim);
  for (auto& before : fields::to_json(at_target(claim))) made.emplace(before.key(), std::move(before.value()));
  return fields::to_file(kClaimVersion, std::move(made));
}

result<Claim> decode(std::string_view text) try {
  const auto object = fields::parse_file(text, "claim", kClaimVersion);
  if (!object) return object.error();
  auto claim = fields::from_json<Claim>(*object, "claim");
  if (!claim) return claim.error();
  auto before = fields::from_json<AtTarget>(*object, "claim");
  if (!before) return before.error();
  const bool file = claim->usage.attachment == AccessType::block;
  claim->mode_before = file ? before->file_mode : before->folder_mode;
  claim->owner_before = file ? before->file_owner : before->folder_owner;
  claim->folder_before = before->folder;
  if (!claim->target.starts_with('/') || claim->volume.external_id.empty())
    return Error{errc::state_corrupt, "claim: it names no target, or no volume"};
  return claim;
} catch (const std::bad_alloc&) {
  return Error{errc::unavailable, "no memory to read a claim"};
}

}  // namespace corbd::manager
