// Values of a mount: the volume, its usage, and the claim that remembers both. Nothing here makes a call.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/fields.hpp"
#include "corbd/core/held_path.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/secret.hpp"

namespace corbd::manager {

enum class AccessType { filesystem, block };

/// A user's way of using a volume. Users of equal usage share one staging path. All of it counts, by value: two users
/// with the same mount options have one usage (docs/sources.md#nomad).
struct Usage {
  std::string access_mode = "SINGLE_NODE_WRITER";  ///< CSI's name of VolumeCapability.AccessMode
  AccessType attachment = AccessType::filesystem;
  bool read_only = false;
  std::string fstype;                      ///< empty: the plugin's default
  std::vector<std::string> mount_options;  ///< in the given order
  static constexpr std::tuple fields{
      fields::required("access_mode", &Usage::access_mode), fields::required("block", &Usage::attachment),
      fields::required("read_only", &Usage::read_only), fields::required("fstype", &Usage::fstype),
      fields::required("mount_options", &Usage::mount_options)};
  friend bool operator==(const Usage&, const Usage&) = default;
};

/// The plugin's identification of a volume, and the volume's name in our folders.
struct PluginVolume {
  std::string plugin;                   ///< name of the plugin, from GetPluginInfo
  std::string external_id;              ///< volume_id of every call
  std::string space = "default", name;  ///< namespace and name; both are only for people and paths
  static constexpr std::tuple fields{
      fields::required("plugin", &PluginVolume::plugin), fields::required("external_id", &PluginVolume::external_id),
      fields::required("namespace", &PluginVolume::space), fields::required("name", &PluginVolume::name)};
  friend bool operator==(const PluginVolume&, const PluginVolume&) = default;
};

using Texts = std::map<std::string, std::string>;

/// A caller's request for a mount.
struct Mount {
  PluginVolume volume;
  Usage usage;
  std::string user;    ///< the user: Nomad's allocation, or another unique name
  std::string target;  ///< absolute; empty: per-alloc/<user>/<name>/<usage> below the root
  Texts volume_context, publish_context;
  std::map<std::string, Secret> secrets;  ///< never stored
  Texts notes;                            ///< stored in the claim for the caller; the plugin does not get them
};

/// Owner of a folder or a file.
struct Owner {
  unsigned uid = 0, gid = 0;
  static constexpr std::tuple fields{fields::required("uid", &Owner::uid), fields::required("gid", &Owner::gid)};
  friend bool operator==(const Owner&, const Owner&) = default;
};

/// The object at a target before its mount: an empty folder, or for a raw block volume an empty file.
struct Before {
  bool file = false;
  unsigned mode = 0;
  std::optional<Owner> owner;            ///< older claims have none: root
  std::optional<FolderIdentity> folder;  ///< folder that held it; older claims have none: only root's own is restored
  static constexpr std::tuple fields{fields::required("file", &Before::file), fields::required("mode", &Before::mode),
                                     fields::rare("owner", &Before::owner), fields::rare("folder", &Before::folder)};
};

/// The durable state of one user of a volume, from before the first call until after the last one.
struct Claim {
  /// mounting: any step of the mount may have happened. mounted: all of them. unmounting: the target may still be
  /// mounted. leaving: it is not, so this is no user any more; the staging path may still be in use.
  enum class Phase { mounting, mounted, unmounting, leaving };
  Phase phase = Phase::mounting;
  /// The claim is unmounting or leaving and is to be mounted again, so it stays after the unmount.
  bool again = false;
  PluginVolume volume;
  Usage usage;
  std::string user, staging, target;
  /// Permissions and owner of the folder, or for a raw block volume of the empty file, that was at the target before
  /// the mount. A plugin removes the target (CSI, NodeUnpublishVolume), so it is restored afterwards.
  std::optional<unsigned> mode_before;
  std::optional<Owner> owner_before;            ///< older claims do not have it
  std::optional<FolderIdentity> folder_before;  ///< the folder that held it; older claims do not have it
  /// The boot in which it was last to be mounted, from before the first call; and the mount at the target then, as
  /// PathState::mount. Both distinguish another's mount from ours. Older claims have neither.
  std::string boot_id, shown;
  Texts volume_context, publish_context, notes;
  static constexpr bool has_unsaved_members = true;  ///< the *_before have keys of their own
  static constexpr std::tuple fields{fields::required("phase", &Claim::phase),
                                     fields::required("volume", &Claim::volume),
                                     fields::required("usage", &Claim::usage),
                                     fields::required("user", &Claim::user),
                                     fields::required("staging", &Claim::staging),
                                     fields::required("target", &Claim::target),
                                     fields::required("volume_context", &Claim::volume_context),
                                     fields::required("publish_context", &Claim::publish_context),
                                     fields::required("notes", &Claim::notes),
                                     fields::rare("again", &Claim::again),
                                     fields::rare("boot_id", &Claim::boot_id),
                                     fields::rare("shown", &Claim::shown)};
};

/// Whether the claim stands for a user whose staging path must stay.
inline bool uses(const Claim& claim) { return claim.phase != Claim::Phase::leaving; }

std::string_view name(Claim::Phase phase);

/// An event that people should hear of: about a volume's mount or unmount, or about the plugin.
struct Event {
  enum class What { progress, mounted, unmounted, plugin } what = What::progress;
  std::string volume;  ///< external id; for the plugin its name
  std::string target;
  bool success = true;
  std::string message;
};

/// Control thread only.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void heard(const Event& event) = 0;
};

/// State of the plugin.
struct Health {
  bool ready = false;
  std::string name, version;   ///< by its last answer
  std::optional<bool> stages;  ///< STAGE_UNSTAGE_VOLUME, by its last answer
  std::string problem;         ///< reason why it is not ready
  friend bool operator==(const Health&, const Health&) = default;
};

}  // namespace corbd::manager
