// The mark of the client that writes an image without exclusive-lock. The client's watch ends with it, or with a fence;
// the mark stays. So the next writer knows whom to blocklist before it writes (docs/dead-node.md). Pool threads, except
// where noted.
#pragma once

#include <functional>
#include <string>

#include "image_handle.hpp"

namespace corbd::rbd {

/// Makes the text that one open image writes: the image's ID, because a clone inherits the metadata of its parent; this
/// client's address; a number that no other open image of this client has; and a signature.
std::string new_mark(const ImageHandle& opened);
/// Adds the signature by a Ceph key. Anybody who may write the image can write any mark, but without the key names
/// nobody to be cut off. An owner of the key may cut off that client himself, by the mon caps 'profile rbd'.
std::string signed_mark(const std::string& mark, const Secret& key);
bool is_signed(std::string_view mark, const Secret& key);
/// Returns the address in a mark of that image; empty for another image's, or for no mark at all.
std::string writer_in(const std::string& mark, const std::string& image_id);

struct Mark {
  std::string writer;         ///< address of the client that left it; empty: there is none of this image
  bool is_signed = false;     ///< signed with the key of this client
  std::uint64_t version = 0;  ///< version of the header that has it
};
result<Mark> read_mark(const ImageHandle& opened);
/// Writes the mark over any other. `seen`: the header's version when its users were read. in_use: it has another one
/// now. A mark that was under way for long would otherwise replace that of a client which came meanwhile, and both
/// would write.
result<> write_mark(const ImageHandle& opened, const std::string& mark, std::uint64_t seen);
/// Removes that mark; another one stays. It waits for the cluster, and takes no thread. Control thread.
task<result<>> remove_mark(executor control, Clock& clock, const ImageHandle& opened, const std::string& mark);
/// Retries for a minute, unless it became pointless. Meanwhile the image stays open: the mark of a living client,
/// without a watch beside it, would make the next writer cut off that client with all its other images.
task<result<>> persist(executor control, Clock& clock, std::function<task<result<>>()> remove,
                       std::function<bool()> pointless);

}  // namespace corbd::rbd
