// cluster-mapping.json is whatever an operator's ConfigMap holds: places to try or an error, never anything else.
#include <cstdlib>

#include "corbd/rbd/cluster_mapping.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd::rbd;
  const auto mappings = parse_cluster_mapping(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!mappings) return 0;
  const auto places = mapped_places(*mappings, {"a", 1});
  if (!places) return 0;
  for (const auto& place : *places)
    if (place.cluster_id.empty() || place.pool_id < 0) std::abort();
  return 0;
}
