// How the LUKS header of a new volume encrypts: the attributes encryptionCipher, encryptionKeySize,
// encryptionSectorSize and integrityMode (docs/sources.md#luks). Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace corbd::cephcsi {

using Attributes = std::map<std::string, std::string>;

/// The parameters of a new header, which a volume that has its header ignores, and of the mapping.
struct LuksOptions {
  std::string cipher = "aes-xts-plain64";
  std::uint32_t key_bits = 512;    ///< key size of the cipher; XTS splits it into two keys
  std::string integrity;           ///< "hmac-sha256", which has its own key; "": none
  std::uint32_t sector_bytes = 0;  ///< 0: the device's preferred size
  /// Reason why no header can be made: the attribute, and its allowed values. A volume that has its header ignores
  /// this.
  std::string refused;
  bool discard = false;  ///< encryptionDiscard: each opening lets discards through, of a volume that has its header too
  bool operator==(const LuksOptions&) const = default;
};
LuksOptions read_luks_options(const Attributes& attributes);

}  // namespace corbd::cephcsi
