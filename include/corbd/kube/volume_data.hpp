// kubelet's own file about a volume, vol_data.json (docs/sources.md#kubelet-paths).
#pragma once

#include <string>
#include <string_view>

namespace corbd::kube {

/// Content of the file. An absent value is empty.
struct VolumeData {
  std::string driver, handle, persistent_volume;
  std::string selinux_context;
};
VolumeData parse_volume_data(std::string_view text);

}  // namespace corbd::kube
