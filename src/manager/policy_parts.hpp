// Helpers of both halves of the policy.
#pragma once

#include "policy.hpp"

namespace corbd::manager {

Action failed(errc code, std::string text);
/// The owner of the mount at the target, as far as the facts show it. untold: they do not.
enum class Whose { ours, another, untold };
/// Judges by the claim alone: a mount that died may be older than the present staging.
Whose whose_by_claim(const Claim& claim, const PathState& target, const std::string& boot_id);
Whose whose(const Claim& claim, const MountFacts& seen);
/// Whether the claim is of another boot. Then nothing that was mounted for it is mounted now.
bool of_another_boot(const Claim& claim, const std::string& boot_id);
/// Whether a look at the staging path would help.
bool wants_staging(const Claim& claim, const MountFacts& seen);
/// Whether the staging path shows what its user mounts, so that both can be compared. A plugin is free in what it has
/// there for a raw block volume, unless it is a device.
bool comparable(AccessType attachment, const PathState& staging);
Action foreign(const std::string& path, const PathState& target);
Action in_use(const std::string& target, const std::vector<std::string>& users);

Action next_of_refresh(const std::optional<Claim>& claim, const Goal& wish, const MountFacts& seen);
Action next_of_expand(const std::optional<Claim>& claim, const Goal& wish, const MountFacts& seen);
/// Decides a set_down, too. Requires a claim.
Action next_of_unmount(const Claim& claim, const Goal& wish, const MountFacts& seen);

}  // namespace corbd::manager
