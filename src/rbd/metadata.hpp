// The metadata of an open image, by librbd. Pool threads.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "image_handle.hpp"

namespace corbd::rbd {

/// Nothing: there is no such entry.
result<std::optional<std::string>> get_metadata(const ImageHandle& opened, const std::string& name);
/// Returns every entry whose name begins with `prefix`.
result<std::map<std::string, std::string>> list_metadata(const ImageHandle& opened, const std::string& prefix);
/// `value`: nothing removes the entry. `locked`: this client has the image's lock. librbd would request it from another
/// owner.
result<> write_metadata(const ImageHandle& opened, const std::string& name, const std::optional<std::string>& value,
                        bool locked);

}  // namespace corbd::rbd
