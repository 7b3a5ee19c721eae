// KMIP's encoding: a tag, a type, a length and a value, padded to eight bytes (KMIP 1.4, "TTLV Encoding"). Pure.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace corbd::kms {

enum class TtlvTag : std::uint32_t {
  batch_count = 0x42000d,
  batch_item = 0x42000f,
  block_cipher_mode = 0x420011,
  cryptographic_algorithm = 0x420028,
  cryptographic_parameters = 0x42002b,
  iv_counter_nonce = 0x42003d,
  key_block = 0x420040,
  key_material = 0x420043,
  key_value = 0x420045,
  operation = 0x42005c,
  padding_method = 0x42005f,
  protocol_version = 0x420069,
  protocol_version_major = 0x42006a,
  protocol_version_minor = 0x42006b,
  request_header = 0x420077,
  request_message = 0x420078,
  request_payload = 0x420079,
  response_message = 0x42007b,
  response_payload = 0x42007c,
  result_message = 0x42007d,
  result_reason = 0x42007e,
  result_status = 0x42007f,
  symmetric_key = 0x42008f,
  unique_identifier = 0x420094,
  data = 0x4200c2,
};

enum class TtlvType : std::uint8_t { structure = 1, integer = 2, enumeration = 5, text = 7, bytes = 8 };

/// `value` of a structure: its items, one after the other.
std::string ttlv(TtlvTag tag, TtlvType type, std::string_view value);
/// Encodes an integer or an enumeration.
std::string ttlv(TtlvTag tag, TtlvType type, std::uint32_t value);

struct TtlvItem {
  TtlvTag tag{};
  TtlvType type{};
  std::string_view value;  ///< a view of the text that was parsed
  /// Returns the value of an integer or an enumeration; nothing for another item.
  std::optional<std::uint32_t> number() const;
};

/// Removes and returns the first item of the text. Nothing if the text does not begin with a whole one.
std::optional<TtlvItem> take_ttlv(std::string_view& text);
/// Returns the first item on that path of structures; nothing if there is none, or an item before it is truncated.
std::optional<TtlvItem> find_ttlv(std::string_view text, std::initializer_list<TtlvTag> path);

}  // namespace corbd::kms
