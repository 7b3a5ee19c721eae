// Base64 with its padding, as Ceph, ceph-csi and Kubernetes write it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace corbd {

std::string to_base64(std::string_view bytes);
/// Returns nothing if the text is not base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace corbd
