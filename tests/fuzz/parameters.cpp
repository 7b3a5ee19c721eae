// What a StorageClass's author wrote, one "name=value" a line: options that hold the promises, or an error; nothing
// shows a value of what it ignores.
#include <cstdlib>
#include <string>

#include "corbd/cephcsi/parameters.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd::cephcsi;
  const std::string text(reinterpret_cast<const char*>(data), size);
  Attributes attributes;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const auto equals = std::min(line.find('='), line.size());
    attributes[line.substr(0, equals)] = line.substr(std::min(equals + 1, line.size()));
    at = end + 1;
  }
  const auto parameters = read_parameters(attributes);
  if (!parameters) return 0;
  for (const auto& [name, value] : parameters->serving.config) {
    const bool known = name.starts_with("rbd_") || name.starts_with("debug_") || name == "log_file";
    if (!known || name == "rbd_cache" || name.starts_with("rbd_persistent_cache") || value.empty()) std::abort();
  }
  if (parameters->serving.dead_conn_timeout_s == 0) std::abort();
  for (const auto& sentence : parameters->ignored)
    for (const unsigned char c : sentence)
      if (c < 0x20 || c > 0x7e) std::abort();
  return 0;
}
