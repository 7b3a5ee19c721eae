// Rule 1: acknowledged means stored. Whether an image's effective configuration keeps to that.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"

namespace corbd::rbd {

/// One effective option of an open image, as rbd_config_image_list gives it.
struct Option {
  enum class Source { client, pool, image } source = Source::client;
  std::string name, value;
};

/// unsafe_config when an option puts a cache between the client and the cluster that acknowledges first. Image and pool
/// metadata win over what the client sets (seen), so the text names the level and the command that removes it. `pool`:
/// as in commands, with the namespace; `image`: its name.
std::optional<Error> unsafe(const std::vector<Option>& options, std::string_view pool, std::string_view image);

}  // namespace corbd::rbd
