// Resolves the monitors' names of config.json in user space, as librados and `rbd map` do: the kernel would ask the
// host's resolver, if it can at all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "corbd/core/result.hpp"

namespace corbd::krbd {

/// Returns the addresses of a host's name: "10.0.0.1", "fd00::1". Never empty.
using LookUp = std::function<result<std::vector<std::string>>(const std::string& host)>;

/// Returns one entry for each address, in config.json's form but without names. A name that does not resolve is left
/// out while another entry remains; unavailable if none does.
result<std::vector<std::string>> with_addresses(const std::vector<std::string>& monitors, const LookUp& look_up);

/// Uses getaddrinfo(3), which may block: only for a helper.
result<std::vector<std::string>> look_up_host(const std::string& host);

}  // namespace corbd::krbd
