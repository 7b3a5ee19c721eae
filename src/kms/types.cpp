#include "types.hpp"

#include <algorithm>
#include <array>

#include "wrapped_key.hpp"

namespace corbd::kms {
namespace {

// --- metadata

result<> check_metadata(const KmsType::Section& section, const std::string& id) {
  if (!section.contains("secretName")) return {};
  return Error{errc::unimplemented,
               "KMS \"" + id +
                   "\" of type metadata takes its passphrase from a Secret of its own (secretName), which is not "
                   "supported yet: put encryptionPassphrase into the node-stage secret"};
}

result<Secret> unwrap_metadata(const KmsType::Section&, std::string_view volume_id, std::string_view wrapped,
                               const Secret& passphrase) {
  return unwrap_key(volume_id, wrapped, passphrase);
}

result<std::string> wrap_metadata(const KmsType::Section&, std::string_view volume_id, const Secret& key,
                                  const Secret& passphrase) {
  return wrap_key(volume_id, key, passphrase);
}

// --- the table

constexpr std::array kTypes{
    KmsType{.name = "default", .kind = Kind::shared},
    KmsType{.name = "metadata",
            .kind = Kind::per_volume,
            .check = check_metadata,
            .unwrap = unwrap_metadata,
            .wrap = wrap_metadata},
};

}  // namespace

const KmsType* kms_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &KmsType::name);
  return found == kTypes.end() ? nullptr : found;
}

std::string known_types() {
  std::string text;
  for (const auto& type : kTypes) text += (text.empty() ? "" : " or ") + std::string(type.name);
  return text;
}

}  // namespace corbd::kms
