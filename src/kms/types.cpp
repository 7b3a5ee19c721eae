#include "types.hpp"

#include <algorithm>
#include <array>

#include "aws.hpp"
#include "azure.hpp"
#include "key_protect.hpp"
#include "kmip.hpp"
#include "metadata.hpp"
#include "vault.hpp"

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
            .wrap = metadata::wrap,
            .passphrase = metadata::passphrase},
    KmsType{.name = "vault",
            .kind = Kind::stored,
            .keys = vault::kPodKeys,
            .check = vault::check<vault::Login::pod>,
            .fetch = vault::fetch<vault::Login::pod>,
            .store = vault::store<vault::Login::pod>},
    KmsType{.name = "vaulttokens",
            .kind = Kind::stored,
            .has_tenants = true,
            .keys = vault::kTokenKeys,
            .check = vault::check<vault::Login::token>,
            .fetch = vault::fetch<vault::Login::token>,
            .store = vault::store<vault::Login::token>},
    KmsType{.name = "vaulttenantsa",
            .kind = Kind::stored,
            .has_tenants = true,
            .keys = vault::kTenantAccountKeys,
            .check = vault::check<vault::Login::tenant_account>,
            .fetch = vault::fetch<vault::Login::tenant_account>,
            .store = vault::store<vault::Login::tenant_account>},
    KmsType{.name = "aws-metadata",
            .kind = Kind::wrapped,
            .keys = aws::kKeys,
            .check = aws::check,
            .unwrap = aws::unwrap,
            .wrap = aws::wrap},
    KmsType{.name = "aws-sts-metadata",
            .kind = Kind::wrapped,
            .has_tenants = true,
            .keys = aws::kStsKeys,
            .check = aws::check_sts,
            .unwrap = aws::unwrap_sts,
            .wrap = aws::wrap_sts},
    KmsType{.name = "azure-kv",
            .kind = Kind::stored,
            .keys = azure::kKeys,
            .check = azure::check,
            .fetch = azure::fetch,
            .store = azure::store},
    KmsType{.name = "ibmkeyprotect",
            .kind = Kind::wrapped,
            .keys = key_protect::kKeys,
            .check = key_protect::check,
            .unwrap = key_protect::unwrap,
            .wrap = key_protect::wrap},
    KmsType{.name = "kmip",
            .kind = Kind::wrapped,
            .keys = kmip::kKeys,
            .check = kmip::check,
            .unwrap = kmip::unwrap,
            .wrap = kmip::wrap},
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
