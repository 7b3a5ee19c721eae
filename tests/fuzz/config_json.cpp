// config.json is whatever an operator's ConfigMap holds: an answer or an error, never anything else.
#include "corbd/rbd/config_json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto entry = corbd::rbd::parse_config_json(std::string_view(reinterpret_cast<const char*>(data), size), "c");
  static_cast<void>(entry);
  return 0;
}
