// Whatever kubelet's socket brings: an accepted volume id and path cannot leave their places, and an error never shows
// a secret.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "requests.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  constexpr std::string_view canary = "AQCanaryCanaryCanary==";
  // The fuzzer learns the word from the comparison below, and may put it where an error may show it.
  if (std::string_view(reinterpret_cast<const char*>(data), size).find(canary) != std::string_view::npos) return 0;
  csi::v1::NodeStageVolumeRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  for (auto& [name, value] : *request.mutable_secrets())
    if (name == "userKey" && !value.empty() && value.front() == 'A') value = canary;
  const auto wish = corbd::csi::wish_of(request);
  if (!wish) {
    if (wish.error().text.find(canary) != std::string::npos) std::abort();
    return 0;
  }
  const std::string& id = request.volume_id();
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (id.empty() || id.size() > 255 || id.find('/') != id.npos || id.find("..") != id.npos ||
      std::any_of(id.begin(), id.end(), control))
    std::abort();
  const auto& staged = std::get<corbd::plan::Staged>(*wish);
  if (staged.path.front() != '/' || (staged.path + "/").find("/../") != std::string::npos) std::abort();
  if (staged.credential.user.empty() || staged.credential.key.empty()) std::abort();
  return 0;
}
