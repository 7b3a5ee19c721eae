// config.json of the KMS folder, as ceph-csi's ConfigMap has it.
#pragma once

#include "types.hpp"

namespace corbd::kms {

/// A KMS of the config, which its type can serve.
struct Found {
  const KmsType* type = nullptr;
  KmsType::Section section;
};
/// Errors as of kind_of().
result<Found> find_kms(std::string_view config, std::string_view kms_id);

}  // namespace corbd::kms
