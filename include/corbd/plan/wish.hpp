// Wishes of callers for a volume.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "corbd/cephcsi/claim.hpp"
#include "corbd/cephcsi/io_limits.hpp"
#include "corbd/cephcsi/luks_options.hpp"
#include "corbd/cephcsi/serving.hpp"
#include "corbd/cephcsi/stash.hpp"
#include "corbd/core/fields.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/core/time.hpp"
#include "corbd/image/values.hpp"
#include "corbd/plan/credential.hpp"

namespace corbd::plan {

using cephcsi::IoLimits;
using cephcsi::KernelOptions;
using cephcsi::Mounter;
using cephcsi::OnDamage;
using cephcsi::PvcRef;
using cephcsi::Serving;
using cephcsi::Stash;

/// The use of a volume at one staging path. Two that differ in more than mount flags are incompatible (ALREADY_EXISTS).
struct Capability {
  bool block = false;          ///< raw block; otherwise a filesystem
  std::string fstype;          ///< "ext4"; empty for block, and in a wish for any type
  std::string mount_flags;     ///< comma separated, in the caller's order
  bool read_only = false;      ///< the access mode forbids writing
  bool single_writer = false;  ///< ReadWriteOncePod: one target at a time
  bool shared = false;         ///< ReadWriteMany of a raw block volume: other nodes write it too
  static constexpr std::tuple fields{fields::required("block", &Capability::block),
                                     fields::required("fstype", &Capability::fstype),
                                     fields::required("mount_flags", &Capability::mount_flags),
                                     fields::required("read_only", &Capability::read_only),
                                     fields::required("single_writer", &Capability::single_writer),
                                     fields::added("shared", &Capability::shared)};
  bool operator==(const Capability&) const = default;
};

/// Whether its mount is read-only: by access mode, by mapOptions or by the mount flag "ro".
bool wants_read_only(const Capability& capability);
/// Fills in the type of an empty image, if none is named.
Capability with_fstype(Capability capability);

/// Place of the image. In a wish it is the request's, in a record the one that was found.
struct Source {
  std::string cluster_id, pool, ns, image;
  std::string mkfs_options;  ///< "" = ceph-csi's defaults
  Serving serving = {};
  KernelOptions kernel = {};
  OnDamage on_damage = OnDamage::fsck;
  static constexpr std::tuple fields{fields::required("cluster_id", &Source::cluster_id),
                                     fields::required("pool", &Source::pool),
                                     fields::required("ns", &Source::ns),
                                     fields::required("image", &Source::image),
                                     fields::required("mkfs_options", &Source::mkfs_options),
                                     fields::rare("serving", &Source::serving),
                                     fields::rare("kernel", &Source::kernel),
                                     fields::rare("on_damage", &Source::on_damage)};
  bool operator==(const Source&) const = default;
};

/// The orchestrator's view of this volume on this node: a VolumeAttachment of Kubernetes
/// (docs/sources.md#volume-attachment).
struct Attachment {
  enum class State {
    unknown,  ///< it does not answer, or is attaching or detaching
    here,     ///< attached to this node, and not about to be detached
    away,     ///< not attached to this node
    none      ///< volumes of this driver are not attached (attachRequired: false): nobody knows
  } state = State::unknown;
  std::string uid;          ///< here: a new one each time it is attached
  std::string why;          ///< otherwise: the reason
  bool maybe_away = false;  ///< unknown: it is away, or was looked up under a wrong name (--nodeid, --drivername)
  bool operator==(const Attachment&) const = default;
};

struct Staged {
  static constexpr std::string_view name = "stage";
  std::string path;  ///< staging path of the request; the mount is <path>/<volume id>
  Capability capability;
  Source source;
  /// For a volume of ceph-csi's provisioner: cluster_id is then the handle's, and the journal has pool, namespace and
  /// image.
  std::optional<image::Reserved> reserved = std::nullopt;
  std::vector<std::string> ignored = {};  ///< a sentence for each attribute without effect
  std::string kms_id = {};                ///< for an encrypted volume; its journal overrides it
  std::string encryption_type = {};       ///< for an encrypted volume: "block" or "file"; its journal overrides it
  Stash stash = {};                       ///< values from the attributes; the rest is known later
  Mounter mounter = Mounter::nbd;
  /// Value of capability.read_only if the other client served it: its device may have existed before.
  std::optional<bool> read_only_otherwise = std::nullopt;
  Credential credential;
  Secret passphrase = {};                      ///< an encrypted volume's, from its secret; empty: it has none
  std::map<std::string, Secret> secrets = {};  ///< other values of its secret, for a KMS that names one of them
  cephcsi::LuksOptions luks = {};              ///< for an encrypted volume that has no header yet
  Attachment attachment = {};                  ///< asked for this wish; unknown: not asked
  bool reads_alone = false;                    ///< SINGLE_NODE_READER_ONLY: nobody writes it when it is staged first
  PvcRef claim = {};                           ///< from the attributes
  bool operator==(const Staged&) const = default;
};
struct Unstaged {
  static constexpr std::string_view name = "unstage";
  std::string path;
  bool operator==(const Unstaged&) const = default;
};
struct Published {
  static constexpr std::string_view name = "publish";
  std::string path;  ///< staging path
  std::string target;
  bool read_only = false;
  Capability capability;
  std::optional<bool> read_only_otherwise = std::nullopt;  ///< see Staged
  std::string pod = {};                                    ///< "namespace/name"; empty: unknown
  std::string pod_uid = {};                                ///< empty: unknown, so its I/O is not limited
  PvcRef claim = {};                                       ///< from the attributes
  bool operator==(const Published&) const = default;
};
struct Unpublished {
  static constexpr std::string_view name = "unpublish";
  std::string target;
  bool operator==(const Unpublished&) const = default;
};
/// Serves a staged volume again that nobody serves.
struct Healed {
  static constexpr std::string_view name = "heal";
  /// An operator says that no other node used the image (`corbd heal ID --without-proof`). It counts in this one try,
  /// and only if nobody says otherwise.
  bool operator_override = false;
  /// An operator accepts the loss of a dead rbd-nbd's cache (`corbd heal ID --loss-accepted`): flushes no longer fail.
  bool loss_accepted = false;
  /// A request of the volume's Ceph client, or a call on an image of it, has got no answer for long: its user may have
  /// been removed.
  bool silent = false;
  bool operator==(const Healed&) const = default;
};
/// Does the same, and asks rbd-nbd to leave the volume to this agent if it serves it.
struct Adopted {
  static constexpr std::string_view name = "adopt";
  bool operator==(const Adopted&) const = default;
};
/// Gives a volume up by hand: its device answers EIO to everything until it is unstaged.
struct GivenUp {
  static constexpr std::string_view name = "fail";
  bool operator==(const GivenUp&) const = default;
};

/// Grows the device to that many bytes at least, and its filesystem, unless it is read-only, to the device. Needs a
/// live link: healing does this itself.
struct Expanded {
  static constexpr std::string_view name = "expand";
  std::string path;         ///< staging path of the request; the mount is <path>/<volume id>
  std::uint64_t bytes = 0;  ///< 0: the image's size
  std::string target = {};  ///< its other possible path; empty: none
  bool operator==(const Expanded&) const = default;
};

/// Gives an encrypted volume a new key, after which the old one does not open it. Needs a live link. Its KMS keeps a
/// key of each volume.
struct Rekeyed {
  static constexpr std::string_view name = "rekey";
  Secret passphrase;                           ///< from its secret
  std::map<std::string, Secret> secrets = {};  ///< other values of its secret, for a KMS that names one of them
  bool operator==(const Rekeyed&) const = default;
};

/// Gives unused space of its filesystem back to the cluster. Needs a live link.
struct Trimmed {
  static constexpr std::string_view name = "trim";
  std::string path;                        ///< staging path of the request; the mount is <path>/<volume id>
  std::optional<std::uint64_t> from = {};  ///< only the piece that begins at this byte of the filesystem
  bool operator==(const Trimmed&) const = default;
};

/// Notes the orchestrator's answer: that attachment is the reason why the volume, which is served, is here.
struct Attached {
  static constexpr std::string_view name = "attach";
  std::string uid;
  bool operator==(const Attached&) const = default;
};

/// Serves the volume by the user and key that its Secret has now. A credential that the cluster does not take changes
/// nothing.
struct Authorized {
  static constexpr std::string_view name = "authorize";
  Credential credential;
  bool operator==(const Authorized&) const = default;
};

/// Freezes its filesystem for a snapshot. Needs a live link.
struct Frozen {
  static constexpr std::string_view name = "freeze";
  std::string id;    ///< unique to this freeze
  time_point until;  ///< not begun, and not waited for, after that
  bool operator==(const Frozen&) const = default;
};
/// Thaws what a freeze of this agent, or of an earlier one, has frozen. Needs a live link.
struct Thawed {
  static constexpr std::string_view name = "thaw";
  bool operator==(const Thawed&) const = default;
};

using Wish = std::variant<Staged, Unstaged, Published, Unpublished, Healed, Adopted, GivenUp, Expanded, Trimmed,
                          Rekeyed, Attached, Authorized, Frozen, Thawed>;

/// For people and the log: "stage".
std::string_view name(const Wish& wish);

}  // namespace corbd::plan
