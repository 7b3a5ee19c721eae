// Files of our own state, written so that a crash leaves the old or the new content, never a mixture.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd {

/// Writes a temporary file in the same folder, then fsync, rename, fsync of the folder. A failure is state_write with
/// the path and the reason; the old content then stays.
result<> write_durably(const std::string& path, std::string_view content, mode_t mode);
/// Does the same without new blocks, so that it works on a full disk. It writes into `from`, which is as long as the
/// content, and renames that to `path`.
result<> overwrite_durably(const std::string& from, const std::string& path, std::string_view content);
/// not_found if the file does not exist. A file of more than `limit` bytes is state_corrupt.
result<std::string> read_file(const std::string& path, std::size_t limit);
/// Writes a byte into a file at that path. It needs no fsync: a full or read-only filesystem refuses the write itself.
result<> try_writing(const std::string& path);
/// Removes the file durably. Succeeds if it does not exist.
result<> remove_durably(const std::string& path);
/// Makes the folder (without changing its parents' modes) and checks that we may write there.
result<> make_folder(const std::string& path, mode_t mode);
/// Makes the folder with mode 0700, which an existing folder gets too. A folder directly below / keeps its mode.
result<> make_private_folder(const std::string& path);
/// Whether the path still names the file that is open as `fd`, and not a later one.
bool still_names(const std::string& path, int fd);

std::string sha256_hex(std::string_view text);

}  // namespace corbd
