// A KMIP server's answer is whatever the network brings.
#include <cstdlib>

#include "kmip.hpp"
#include "ttlv.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd::kms;
  const Call call{"unwrapping", "host", "Secret"};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto payload = kmip::payload_of(text, call);
  if (!payload && payload.error().text.empty()) std::abort();
  std::string_view rest = payload ? *payload : text;
  while (const auto item = take_ttlv(rest))
    if (item->value.data() < text.data() || item->value.data() + item->value.size() > text.data() + size) std::abort();
  find_ttlv(text, {TtlvTag::symmetric_key, TtlvTag::key_block, TtlvTag::key_value, TtlvTag::key_material});
  return 0;
}
