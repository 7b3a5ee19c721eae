// Splits the options of mkfs into words.
#pragma once

#include <string>
#include <vector>

namespace corbd::host {

/// Splits at single spaces, as ceph-csi does: two in a row make an empty argument.
std::vector<std::string> arguments_of(const std::string& options);

}  // namespace corbd::host
