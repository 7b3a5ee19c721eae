#include "types.hpp"

#include <algorithm>
#include <array>

#include "metadata.hpp"

namespace corbd::kms {
namespace {

constexpr std::array kTypes{
    KmsType{.name = "default", .kind = Kind::shared, .needs_passphrase = [](const Section&) { return true; }},
    KmsType{.name = "metadata",
            .kind = Kind::wrapped,
            .keys = metadata::kKeys,
            .check = metadata::check,
            .needs_passphrase = metadata::needs_passphrase,
            .unwrap = metadata::unwrap,
            .wrap = metadata::wrap},
};

}  // namespace

const KmsType* kms_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &KmsType::name);
  return found == kTypes.end() ? nullptr : found;
}

std::string known_types() {
  std::string text;
  for (const auto& type : kTypes) text += (text.empty() ? "" : ", ") + std::string(type.name);
  return text;
}

}  // namespace corbd::kms
