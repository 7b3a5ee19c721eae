// Base64 as Kubernetes writes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace corbd::kube {

/// Nothing for what is none.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace corbd::kube
