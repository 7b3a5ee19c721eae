// The objects of the API are whatever a server sends: each reader takes what is there, and a refusal's text is fit for
// a log.
#include <algorithm>
#include <cstdlib>

#include "corbd/kube/objects.hpp"
#include "wire.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto refusal = kube::api_error(403, text, std::nullopt, {"get", "things"}, "/things");
  if (refusal.error.text.size() > 2000 + size) std::abort();
  if (refusal.retry_after && (refusal.retry_after->count() < 0 || *refusal.retry_after > std::chrono::minutes(5)))
    std::abort();
  const auto object = kube::parse_object(text, "/things");
  if (!object) return 0;
  static_cast<void>(kube::node_of(*object));
  static_cast<void>(kube::volume_attachment_of(*object));
  const auto volume = kube::persistent_volume_of(*object);
  for (const auto& reference : {volume.node_stage_secret, volume.claim})
    if (reference && reference->name.empty()) std::abort();
  for (const auto& [name, value] : kube::data_of_secret(*object))
    if (value.reveal().size() > size) std::abort();
  return 0;
}
