// ceph-csi's metadata KMS: a passphrase in a Secret wraps the key of each volume.
#pragma once

#include "types.hpp"

namespace corbd::kms::metadata {

inline constexpr std::string_view kKeys[] = {"secretName", "secretNamespace"};

result<> check(const Section& section, const std::string& id);
/// False if a Secret of its own has the passphrase.
bool needs_passphrase(const Section& section);
task<result<Secret>> unwrap(Transport& transport, KeyCall ask, std::string wrapped);
task<result<Secret>> passphrase(Transport& transport, KeyCall ask);
task<result<std::string>> wrap(Transport& transport, KeyCall ask, Secret key);

}  // namespace corbd::kms::metadata
