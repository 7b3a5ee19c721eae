// The header object of an image, written with plain RADOS calls. Pool threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "image_handle.hpp"

namespace corbd::rbd {

/// Writes a little-endian length before the text, as Ceph encodes a std::string and a std::map of them.
std::string encode_text(const std::string& text);

/// Sets or removes metadata of the image without its exclusive lock, which librbd would request from its owner. The
/// header's class (cls_rbd) does it in one operation.
result<> write_header_metadata(const ImageHandle& opened, const std::string& name,
                               const std::optional<std::string>& value);
/// Does the same, and returns Ceph's result. `version`: expected version of the header; -ERANGE or -EOVERFLOW if it has
/// another now.
int change_metadata(const ImageHandle& opened, const std::string& name, const std::optional<std::string>& value,
                    std::optional<std::uint64_t> version = std::nullopt);
/// Implements image::Clusters::may_write.
result<> try_header_write(Connection& connection, const image::Key& key);

}  // namespace corbd::rbd
