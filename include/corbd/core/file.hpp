// Files of our own state: written so that a crash leaves the old or the new content, never a mixture.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd {

/// tmp in the same folder, fsync, rename, fsync of the folder. state_write with the path and the reason; the old
/// content stays then.
result<> write_durably(const std::string& path, std::string_view content, mode_t mode);
/// The same without new blocks, so that a full disk takes it: into `from`, which is as long as the content, and then
/// under `path`.
result<> overwrite_durably(const std::string& from, const std::string& path, std::string_view content);
/// not_found when it is not there. At most `limit` bytes; more is state_corrupt.
result<std::string> read_file(const std::string& path, std::size_t limit);
/// Removes durably; fine when it is not there.
result<> remove_durably(const std::string& path);
/// Makes the folder (not its parents' modes) and checks that it is ours to write.
result<> make_folder(const std::string& path, mode_t mode);
/// Whether the path names the file that is open as `fd`, and no later one.
bool still_names(const std::string& path, int fd);

std::string sha256_hex(std::string_view text);

}  // namespace corbd
