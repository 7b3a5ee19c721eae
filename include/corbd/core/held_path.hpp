// A name in a folder: the only way to make, change, mount on or remove anything below a folder that others than root
// may write (rule 14).
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

#include "corbd/core/fd.hpp"
#include "corbd/core/fields.hpp"
#include "corbd/core/result.hpp"

namespace corbd {

/// Tells a folder from another one that gets the same name later, also after a reboot.
struct FolderIdentity {
  std::uint64_t inode = 0;
  std::int64_t born_ns = 0;  ///< since 1970; 0: the filesystem does not record it
  static constexpr std::tuple fields{fields::required("inode", &FolderIdentity::inode),
                                     fields::required("born_ns", &FolderIdentity::born_ns)};
  friend bool operator==(const FolderIdentity&, const FolderIdentity&) = default;
};

/// Holds the folder open, so each call acts on the name in that very folder, whatever happens to the path meanwhile. No
/// call follows a link. Calls that return bool leave their reason in errno.
class HeldPath {
 public:
  /// Opens the folder of an absolute path. not_found: the folder does not exist. invalid_argument: a part of the path
  /// is a symbolic link, or no folder.
  static result<HeldPath> find(const std::string& path);

  const std::string& path() const { return path_; }
  result<FolderIdentity> folder_identity() const;
  bool look(struct stat& found) const;
  Fd open(int flags) const;
  /// Fails if the name exists.
  Fd make_file(mode_t mode) const;
  bool make_folder(mode_t mode) const;
  bool remove_file() const;
  bool remove_folder() const;
  /// Unmounts the topmost mount there.
  bool unmount() const;

 private:
  HeldPath(std::string path, std::string name, Fd folder)
      : path_(std::move(path)), name_(std::move(name)), folder_(std::move(folder)) {}
  std::string path_, name_;
  Fd folder_;
};

}  // namespace corbd
