#pragma once

#include <string>
#include <string_view>

namespace corbd::kms {

/// Of ceph-csi's ids: enough to be named in a text.
inline std::string shown(std::string_view text) {
  std::string plain(text.substr(0, 64));
  for (char& c : plain)
    if (c < 0x20 || c > 0x7e) c = '?';
  return plain;
}

}  // namespace corbd::kms
