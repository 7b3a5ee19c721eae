// Client addresses as text. Ceph prints one client in several ways: "10.0.0.1:0/123" (any protocol, what 16 and later
// print for clients), "v1:10.0.0.1:0/123", and lists of them in brackets. `osd blocklist add` without a protocol covers
// them all (OSDMap::is_blocklisted compares with the type "any").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace corbd::rbd {

/// Returns the bare addresses in `text`, each once. Empty if any part of it is no client address.
std::vector<std::string> parse_addresses(std::string_view text);
/// Does the same for one address. Text that cannot be parsed comes back unchanged.
std::string bare_address(std::string_view text);

}  // namespace corbd::rbd
