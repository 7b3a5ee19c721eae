// What both halves of the policy share.
#pragma once

#include "policy.hpp"

namespace corbd::manager {

/// "a, b".
std::string joined(const std::vector<std::string>& words);
Step failed(errc code, std::string text);
/// Whether staging path and target show the same mount, so that they can be compared.
bool comparable(Attachment attachment, const Seen& seen);
Step foreign(const std::string& path, const Sight& target);
Step in_use(const std::string& target, const std::vector<std::string>& users);

Step next_of_expand(const std::optional<Claim>& claim, const Wish& wish, const Seen& seen);
/// Also of a set_down. There is a claim.
Step next_of_unmount(const Claim& claim, const Wish& wish, const Seen& seen);

}  // namespace corbd::manager
