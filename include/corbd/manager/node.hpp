// Port to this machine's mounts and folders. A helper process does the work that may wait for a device, within a time
// limit.
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

/// Prefix of PathState::mount for a device node, which a raw block volume has.
inline constexpr std::string_view kDevicePrefix = "the device ";

/// State of a path. Unknown is never taken for "not mounted".
struct PathState {
  enum class At {
    unknown,  ///< could not be found out in time
    nothing,
    folder,   ///< not mounted, empty
    filled,   ///< a folder, not mounted, with content
    file,     ///< not mounted, empty
    link,     ///< a symbolic link
    mounted,  ///< mounted, and it answers
    dead,     ///< mounted, and its device is gone or gives errors
  };
  At at = At::unknown;
  std::string mount;           ///< identity of the mount, comparable between paths; a block device's name if it has one
  std::string text;            ///< the folder's content, or why dead or unknown
  unsigned mode = 0;           ///< permissions of a folder or a file that is not mounted
  Owner owner = {};            ///< their owner
  FolderIdentity folder = {};  ///< the folder that holds it
  bool barred = false;         ///< unknown, because a parent is a symbolic link or no folder, and no call follows it

  bool is_mount() const { return at == At::mounted || at == At::dead; }
  static constexpr bool has_unsaved_members = true;  ///< a helper does not see mounts
  static constexpr std::tuple fields{fields::required("at", &PathState::at), fields::required("text", &PathState::text),
                                     fields::required("mode", &PathState::mode),
                                     fields::required("owner", &PathState::owner),
                                     fields::required("folder", &PathState::folder)};
};

/// Place where a mount counts: at the path, or also below it, where a plugin may have it in its staging path.
enum class Reach { here, below };

/// The port to this machine. Control thread.
class Node {
 public:
  virtual ~Node() = default;
  /// Never fails: if it cannot tell, the result is unknown, with the reason. A mount whose device does not answer in
  /// time is unknown, too: its server may come back.
  virtual task<PathState> look(std::string path, Reach reach, Until until) = 0;
  /// Returns the processes that have something of the mount open: "postgres (12)". Processes that only mapped a file of
  /// it are missed.
  virtual task<result<std::vector<std::string>>> users(std::string target, Until until) = 0;
  /// Makes a folder of the manager's own, and its parents, those with 0700. Succeeds if it exists.
  virtual task<result<>> make_folder(std::string path, unsigned mode, Until until) = 0;
  /// Restores the folder or file that was at the path before the mount. Succeeds if it exists.
  /// invalid_argument if its parent folder is gone, is behind a link, or is another one now: anybody who may write a
  /// parent could have put it there.
  virtual task<result<>> put_back(std::string path, Before before, Until until) = 0;
  /// Removes the folder with rmdir(2), and then each empty parent below `root`. A folder with content stays.
  virtual task<result<>> remove_folder(std::string path, std::string root, Until until) = 0;
  /// Returns the path with every link of its parents resolved. The last component is left as it is. not_found without a
  /// parent.
  virtual task<result<std::string>> resolve(std::string path, Until until) = 0;
};

std::unique_ptr<Node> make_node(HelperPool& helpers);

/// The operations of a helper for this room.
std::span<const helper::Known> helper_operations();

}  // namespace corbd::manager
