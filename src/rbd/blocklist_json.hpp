// What `osd blocklist ls` prints as JSON (docs/sources.md#blocklist). Pure.
#pragma once

#include <string_view>
#include <vector>

#include "corbd/image/blocklist.hpp"

namespace corbd::rbd {

/// unavailable when it is not understood: a fence that is not seen would count as none.
result<std::vector<image::BlocklistEntry>> parse_blocklist(std::string_view json);

}  // namespace corbd::rbd
