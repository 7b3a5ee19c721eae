// What both halves of the policy share.
#pragma once

#include "policy.hpp"

namespace corbd::manager {

/// "a, b".
Action failed(errc code, std::string text);
/// Whose the mount at the target is, as far as what was seen tells. untold: nothing tells it.
enum class Whose { ours, another, untold };
/// By the claim alone: a mount that died may be older than what is staged by now.
Whose whose_by_claim(const Claim& claim, const Sight& target, const std::string& boot_id);
Whose whose(const Claim& claim, const MountFacts& seen);
/// Then nothing that was mounted for it is mounted now.
bool of_another_boot(const Claim& claim, const std::string& boot_id);
/// Whether a look at the staging path would tell more.
bool wants_staging(const Claim& claim, const MountFacts& seen);
/// Whether the staging path shows what its user mounts, so that both can be compared. What a plugin has there of a raw
/// block volume is its own affair, unless it is a device.
bool comparable(AccessType attachment, const Sight& staging);
Action foreign(const std::string& path, const Sight& target);
Action in_use(const std::string& target, const std::vector<std::string>& users);

Action next_of_expand(const std::optional<Claim>& claim, const Goal& wish, const MountFacts& seen);
/// Also of a set_down. There is a claim.
Action next_of_unmount(const Claim& claim, const Goal& wish, const MountFacts& seen);

}  // namespace corbd::manager
