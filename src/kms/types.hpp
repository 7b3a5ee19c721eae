// What differs between types of KMS: one row each. Nothing else in the agent knows a type by its name.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "corbd/kms/kms.hpp"

namespace corbd::kms {

/// `section`: of the KMS, in the KMS config. The functions run on a blocking pool.
struct KmsType {
  using Section = boost::json::object;
  std::string_view name;  ///< encryptionKMSType, or KMS_PROVIDER
  Kind kind = Kind::shared;
  /// Why a KMS with this section is not served; null: it always is. `id`: for the text.
  result<> (*check)(const Section& section, const std::string& id) = nullptr;
  /// For the kind `per_volume`, as Kms::unwrap and Kms::wrap.
  result<Secret> (*unwrap)(const Section& section, std::string_view volume_id, std::string_view wrapped,
                           const Secret& passphrase) = nullptr;
  result<std::string> (*wrap)(const Section& section, std::string_view volume_id, const Secret& key,
                              const Secret& passphrase) = nullptr;
};

/// Nothing for a type without a row.
const KmsType* kms_type(std::string_view name);
/// "default or metadata": for texts.
std::string known_types();

}  // namespace corbd::kms
