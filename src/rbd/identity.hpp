// Finds an image's identity by its name without opening it. An open image has a watch, which others see. Pool threads.
#pragma once

#include "journal.hpp"

namespace corbd::rbd {

/// Takes two operations of the cluster: rbd_id.<name>, and two methods of the header (Ceph's src/cls/rbd). not_found;
/// failed_precondition for an image of format 1.
result<image::Resolved> read_identity(Connection& connection, const Target& target);

/// Decodes a string: u32 length and bytes. Nothing if it is truncated.
std::optional<std::string> decode_text(std::string_view bytes);
/// Decodes a map of texts: u32 count, then names and values. Truncated entries are left out.
std::map<std::string, std::string> decode_texts(std::string_view bytes);

}  // namespace corbd::rbd
