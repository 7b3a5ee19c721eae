// Port to this machine's mounts and folders. Whatever may wait for a device is done by a helper process, within a
// bound.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "corbd/core/held_path.hpp"
#include "corbd/core/helper_operation.hpp"
#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/manager/values.hpp"

namespace corbd::manager {

/// How Sight::mount of a device node begins: of a raw block volume.
inline constexpr std::string_view kDeviceSight = "the device ";

/// What is at a path. Unknown is never taken for "not mounted".
struct Sight {
  enum class At {
    unknown,  ///< could not be told in time
    nothing,
    folder,   ///< not mounted, empty
    filled,   ///< a folder, not mounted, that holds something
    file,     ///< not mounted, empty
    link,     ///< a symbolic link
    mounted,  ///< and it answers
    dead,     ///< mounted, and its device is gone or gives errors
  };
  At at = At::unknown;
  std::string mount;  ///< of a mount: what is mounted, comparable between paths; a block device's name if it has one
  std::string text;   ///< what holds, why dead, why unknown
  unsigned mode = 0;  ///< permissions of a folder or a file that is not mounted
  Owner owner = {};   ///< of the same
  FolderIdentity folder = {};  ///< that holds it
  bool barred = false;  ///< unknown, because a parent is a symbolic link or no folder: nothing here goes through it

  bool is_mount() const { return at == At::mounted || at == At::dead; }
  static constexpr std::tuple fields{fields::required("at", &Sight::at), fields::required("text", &Sight::text),
                                     fields::required("mode", &Sight::mode), fields::required("owner", &Sight::owner),
                                     fields::required("folder", &Sight::folder)};
};

/// Where a mount counts: at the path, or also below it, as a plugin may have it in its staging path.
enum class Reach { here, below };

class Node {
 public:
  virtual ~Node() = default;
  /// Never fails: what it cannot tell is unknown, with the reason. A mount whose device does not answer in time is
  /// unknown, too: its server may come back.
  virtual task<Sight> look(std::string path, Reach reach, Until until) = 0;
  /// The processes that have something of the mount open: "postgres (12)". Not those that only mapped a file of it.
  virtual task<result<std::vector<std::string>>> users(std::string target, Until until) = 0;
  /// Makes the folder and its parents, those with 0700. Succeeds if it is there. For folders of the manager's own.
  virtual task<result<>> make_folder(std::string path, unsigned mode, Until until) = 0;
  /// Makes again what was at the path before the mount. Succeeds if it is there.
  /// invalid_argument where the folder that holds it is gone, is behind a link, or is another one now: whoever may
  /// write a parent may have put it there.
  virtual task<result<>> put_back(std::string path, Before before, Until until) = 0;
  /// rmdir(2) of the folder, and then of each parent below `root` that is empty. What is not empty stays.
  virtual task<result<>> remove_folder(std::string path, std::string root, Until until) = 0;
  /// The path with every link of its parents resolved. The last component is left as it is. not_found without a parent.
  virtual task<result<std::string>> resolve(std::string path, Until until) = 0;
};

std::unique_ptr<Node> make_node(HelperPool& helpers);

/// What it asks of a helper.
std::span<const helper::Known> helper_operations();

}  // namespace corbd::manager
