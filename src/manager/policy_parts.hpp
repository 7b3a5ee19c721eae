// What both halves of the policy share.
#pragma once

#include "policy.hpp"

namespace corbd::manager {

/// "a, b".
std::string joined(const std::vector<std::string>& words);
Step failed(errc code, std::string text);
/// Whose the mount at the target is, as far as what was seen tells. untold: nothing tells it.
enum class Whose { ours, another, untold };
/// By the claim alone: a mount that died may be older than what is staged by now.
Whose whose_by_claim(const Claim& claim, const Sight& target, const std::string& boot_id);
Whose whose(const Claim& claim, const Seen& seen);
/// Then nothing that was mounted for it is mounted now.
bool of_another_boot(const Claim& claim, const std::string& boot_id);
/// Whether a look at the staging path would tell more.
bool wants_staging(const Claim& claim, const Seen& seen);
/// Whether the staging path shows what its user mounts, so that both can be compared. What a plugin has there of a raw
/// block volume is its own affair, unless it is a device.
bool comparable(Attachment attachment, const Sight& staging);
Step foreign(const std::string& path, const Sight& target);
Step in_use(const std::string& target, const std::vector<std::string>& users);

Step next_of_expand(const std::optional<Claim>& claim, const Wish& wish, const Seen& seen);
/// Also of a set_down. There is a claim.
Step next_of_unmount(const Claim& claim, const Wish& wish, const Seen& seen);

}  // namespace corbd::manager
