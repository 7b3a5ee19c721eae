// Reads config.json of the KMS folder, or a ConfigMap instead of it, as ceph-csi does. Pure.
#pragma once

#include <map>

#include "types.hpp"

namespace corbd::kms {

/// A KMS of the config that its type can serve.
struct Found {
  const KmsType* type = nullptr;
  Section section = {};
  Terms terms() const;
};
/// Errors are those of terms_of().
result<Found> find_kms(std::string_view config, std::string_view kms_id);
/// `data`: content of a ConfigMap with a section under each KMS's ID.
result<Found> find_kms(const std::map<std::string, std::string>& data, const std::string& kms_id);

}  // namespace corbd::kms
