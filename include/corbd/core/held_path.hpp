// A name in a folder: the only way to make, change, mount on or remove something below a folder that others than root
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

/// What tells a folder from another one that has its name later, also after a reboot.
struct FolderIdentity {
  std::uint64_t inode = 0;
  std::int64_t born_ns = 0;  ///< since 1970; 0: the filesystem does not say
  static constexpr std::tuple fields{fields::required("inode", &FolderIdentity::inode),
                                     fields::required("born_ns", &FolderIdentity::born_ns)};
  friend bool operator==(const FolderIdentity&, const FolderIdentity&) = default;
};

/// Holds the folder, so whatever is done to the path meanwhile, each call is about the name in that folder. No call
/// follows a link. Those that return bool leave their reason in errno.
class HeldPath {
 public:
  /// Of an absolute path. not_found: its folder is not there. invalid_argument: a part of it is a symbolic link, or no
  /// folder.
  static result<HeldPath> find(const std::string& path);

  const std::string& path() const { return path_; }
  result<FolderIdentity> folder_identity() const;
  bool look(struct stat& found) const;
  Fd open(int flags) const;
  /// Fails where something has the name.
  Fd make_file(mode_t mode) const;
  bool make_folder(mode_t mode) const;
  bool remove_file() const;
  bool remove_folder() const;
  /// The topmost mount there.
  bool unmount() const;

 private:
  HeldPath(std::string path, std::string name, Fd folder)
      : path_(std::move(path)), name_(std::move(name)), folder_(std::move(folder)) {}
  std::string path_, name_;
  Fd folder_;
};

}  // namespace corbd
