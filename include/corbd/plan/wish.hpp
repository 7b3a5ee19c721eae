// What callers may want of a volume.
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
#include "corbd/image/values.hpp"
#include "corbd/plan/credential.hpp"

namespace corbd::plan {

using cephcsi::IoLimits;
using cephcsi::KernelOptions;
using cephcsi::Mounter;
using cephcsi::PvcRef;
using cephcsi::Serving;
using cephcsi::Stash;

/// How a volume is used at one staging path. Two that differ in more than mount flags are incompatible
/// (ALREADY_EXISTS).
struct Capability {
  bool block = false;          ///< raw block; otherwise a filesystem
  std::string fstype;          ///< "ext4"; empty for block, and in a wish for whatever is there
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

/// Nothing is to be written through its mount: by access mode, by mapOptions or by the mount flag "ro".
bool wants_read_only(const Capability& capability);
/// With the type that an empty image gets, where none is named.
Capability with_fstype(Capability capability);

/// Where the image is. In a wish as the request says it, in a record as it was found.
struct Source {
  std::string cluster_id, pool, ns, image;
  std::string mkfs_options;  ///< "" = ceph-csi's defaults
  Serving serving = {};
  KernelOptions kernel = {};
  static constexpr std::tuple fields{fields::required("cluster_id", &Source::cluster_id),
                                     fields::required("pool", &Source::pool),
                                     fields::required("ns", &Source::ns),
                                     fields::required("image", &Source::image),
                                     fields::required("mkfs_options", &Source::mkfs_options),
                                     fields::rare("serving", &Source::serving),
                                     fields::rare("kernel", &Source::kernel)};
  bool operator==(const Source&) const = default;
};

/// What the orchestrator says of this volume on this node: a VolumeAttachment of Kubernetes
/// (docs/sources.md#volume-attachment).
struct Attachment {
  enum class State {
    unknown,  ///< it does not answer, or attaches or detaches just now
    here,     ///< attached to this node, and not about to be detached
    away,     ///< it is not
    none      ///< volumes of this driver are not attached (attachRequired: false): nobody knows
  } state = State::unknown;
  std::string uid;          ///< here: a new one each time it is attached
  std::string why;          ///< otherwise
  bool maybe_away = false;  ///< unknown: it is away, or was asked for under a wrong name (--nodeid, --drivername)
  bool operator==(const Attachment&) const = default;
};

struct Staged {
  static constexpr std::string_view name = "stage";
  std::string path;  ///< the staging path of the request; the mount is <path>/<volume id>
  Capability capability;
  Source source;
  /// For a volume of ceph-csi's provisioner: cluster_id is then the handle's, and the journal tells pool,
  /// namespace and image.
  std::optional<image::Reserved> reserved = std::nullopt;
  std::vector<std::string> ignored = {};  ///< attributes without effect: a sentence each
  std::string kms_id = {};                ///< of an encrypted volume; its journal knows better
  std::string encryption_type = {};       ///< of one: "block" or "file"; the same
  Stash stash = {};                       ///< what the attributes say of it; the rest is known later
  Mounter mounter = Mounter::nbd;
  /// What capability.read_only would be if the other client served it: its device may have been there before.
  std::optional<bool> read_only_otherwise = std::nullopt;
  Credential credential;
  Secret passphrase = {};                      ///< of an encrypted volume, as its secret has it; empty: it has none
  std::map<std::string, Secret> secrets = {};  ///< what else its secret has, for a KMS that names a field of it
  cephcsi::LuksOptions luks = {};              ///< of an encrypted volume that has no header yet
  Attachment attachment = {};                  ///< as it was asked for this wish; unknown: it was not
  bool reads_alone = false;                    ///< SINGLE_NODE_READER_ONLY: nobody writes it when it is staged first
  PvcRef claim = {};                           ///< as the attributes say
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
  std::optional<bool> read_only_otherwise = std::nullopt;  ///< as Staged's
  std::string pod = {};                                    ///< "namespace/name"; empty: not known
  std::string pod_uid = {};                                ///< empty: not known, so its I/O is not limited
  PvcRef claim = {};                                       ///< as the attributes say
  bool operator==(const Published&) const = default;
};
struct Unpublished {
  static constexpr std::string_view name = "unpublish";
  std::string target;
  bool operator==(const Unpublished&) const = default;
};
/// A staged volume that nobody serves is served again.
struct Healed {
  static constexpr std::string_view name = "heal";
  /// An operator says that no other node used the image (`corbd heal ID --without-proof`). It counts in this one try,
  /// and only where nobody says otherwise.
  bool operator_override = false;
  /// An operator accepts what a dead rbd-nbd's cache lost (`corbd heal ID --loss-accepted`): flushes fail no more.
  bool loss_accepted = false;
  bool operator==(const Healed&) const = default;
};
/// The same, and rbd-nbd is asked to leave the volume to this agent if it serves it.
struct Adopted {
  static constexpr std::string_view name = "adopt";
  bool operator==(const Adopted&) const = default;
};
/// A volume is given up by hand: its device answers EIO to everything until it is unstaged.
struct GivenUp {
  static constexpr std::string_view name = "fail";
  bool operator==(const GivenUp&) const = default;
};

/// The device has that many bytes at least, and its filesystem, unless it is read-only, fills it. Needs a live link:
/// healing has its own way.
struct Expanded {
  static constexpr std::string_view name = "expand";
  std::string path;         ///< where the volume is staged or published
  std::uint64_t bytes = 0;  ///< 0: as many as the image has
  std::string target = {};  ///< where else it may be; empty: nowhere
  bool operator==(const Expanded&) const = default;
};

/// An encrypted volume gets a new key, and its old one opens it no more. Needs a live link. Its KMS keeps a key of each
/// volume.
struct Rekeyed {
  static constexpr std::string_view name = "rekey";
  Secret passphrase;                           ///< of its secret
  std::map<std::string, Secret> secrets = {};  ///< as Staged's
  bool operator==(const Rekeyed&) const = default;
};

/// What its filesystem does not use is given back to the cluster. Needs a live link.
struct Trimmed {
  static constexpr std::string_view name = "trim";
  std::string path;  ///< as Expanded::path
  bool operator==(const Trimmed&) const = default;
};

/// The orchestrator was asked: it is by that attachment that the volume, which is served, is here.
struct Attached {
  static constexpr std::string_view name = "attach";
  std::string uid;
  bool operator==(const Attached&) const = default;
};

using Wish = std::variant<Staged, Unstaged, Published, Unpublished, Healed, Adopted, GivenUp, Expanded, Trimmed,
                          Rekeyed, Attached>;

/// For people and the log: "stage".
std::string_view name(const Wish& wish);

}  // namespace corbd::plan
