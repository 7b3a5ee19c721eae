// Values about images and their clients. Nothing here needs a cluster.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/fields.hpp"
#include "corbd/image/features.hpp"

namespace corbd::image {

/// The identity of an image. It survives a rename, and distinguishes an image from one that was made again under the
/// same name.
struct Key {
  std::string fsid;  ///< fsid of the cluster
  std::int64_t pool_id = -1;
  std::string ns;             ///< RADOS namespace, "" is the default one
  std::string image_id;       ///< librbd's internal id
  std::uint64_t snap_id = 0;  ///< 0: the head

  static constexpr std::tuple fields{fields::required("fsid", &Key::fsid), fields::required("pool_id", &Key::pool_id),
                                     fields::required("ns", &Key::ns), fields::required("image_id", &Key::image_id),
                                     fields::required("snap_id", &Key::snap_id)};
  auto operator<=>(const Key&) const = default;
  /// Returns "fsid/pool/ns/id@snap", for logs.
  std::string text() const {
    return fsid + "/" + std::to_string(pool_id) + "/" + ns + "/" + image_id +
           (snap_id == 0 ? "" : "@" + std::to_string(snap_id));
  }
};

/// Bytes of an image.
struct Range {
  std::uint64_t offset = 0, length = 0;
};

/// Answers that a client gets, beside those that a new client of its user gets. deaf: it has waited long for answers
/// that new ones get at once. unsure: it was so at one look.
enum class Hearing { as_others, unsure, deaf };

/// The OSD that answers an image's reads: the primary, any that has the data, or the nearest by the CRUSH map.
enum class ReadPolicy { primary, balance, localize };
constexpr std::string_view name(ReadPolicy policy) {
  return policy == ReadPolicy::balance ? "balance" : policy == ReadPolicy::localize ? "localize" : "primary";
}

/// The names by which a request identifies an image.
struct Name {
  std::string pool, ns, image;
  std::string text() const { return pool + "/" + (ns.empty() ? "" : ns + "/") + image; }
  static constexpr std::tuple fields{fields::required("pool", &Name::pool), fields::required("ns", &Name::ns),
                                     fields::required("image", &Name::image)};
  bool operator==(const Name&) const = default;
};

/// A reservation of ceph-csi's provisioner, decoded from the volume ID. The provisioner's journal in the cluster knows
/// the image's name.
struct Reserved {
  std::int64_t pool_id = -1;  ///< pool of the image
  std::string uuid;
  std::string journal_pool = {};  ///< pool of the journal if it has nothing in the image's pool; "": no other pool
  std::string image = {};         ///< name if no journal knows it; "": csi-vol-<uuid>
  bool operator==(const Reserved&) const = default;
};

/// A possible place of such a volume's image.
struct Place {
  std::string cluster_id;  ///< see Access
  std::int64_t pool_id = -1;
  bool operator==(const Place&) const = default;
};

/// Prefix of the metadata in which a provisioner says whom it made the image for (ceph-csi's --setmetadata).
inline constexpr std::string_view kProvisionedFor = "csi.storage.k8s.io/";

/// An image that was found: its identity, and the properties that a stage needs.
struct Resolved {
  Key key;
  std::uint64_t size = 0;  ///< bytes
  bool exclusive_lock = false;
  Features features = {};
  std::string cluster_id = {};       ///< cluster where it was found, see Access
  Name name = {};                    ///< name at that time
  std::string kms_id = {};           ///< KMS by its journal; "": not encrypted, or no journal
  std::string encryption_type = {};  ///< by its journal: "block", "file", or "" if that does not say it
  std::string tenant = {};           ///< namespace of its claim, by its journal; "": not known
  std::map<std::string, std::string> provisioned_for = {};  ///< metadata below kProvisionedFor
};

/// The holder of an image's lock, and its watchers. Addresses as Ceph prints them: "10.0.0.1:0/123456789".
struct Ownership {
  enum class Lock {
    none,
    mine,
    our_dead,
    other
  } lock = Lock::none;                        ///< our_dead: the owner is a dead incarnation of this agent, or this
                                              ///< client, which kept the lock and has opened the image again
  std::string owner;                          ///< the lock owner's address, if any
  std::string cookie = {};                    ///< cookie of the lock: identifies one of the owner's open images
  std::vector<std::string> foreign_watchers;  ///< without us, our dead incarnations and rbd-mirror; a pure reader has
                                              ///< no watch
  std::string writer = {};     ///< without exclusive-lock: the client that marked the image as its own to write and has
                               ///< not removed the mark. Not ours; it may be dead. Empty: none
  bool writer_signed = false;  ///< that mark was made with this agent's own Ceph key
  bool handed_over = false;    ///< the mark is the predecessor's, which closed the image to hand it to this agent
  bool marked = false;         ///< the mark is this client's
  std::map<std::string, std::string> clients = {};  ///< address to "client.4119", for the owner and the watchers
  std::string self;                                 ///< this client's address
  std::optional<std::uint64_t> modified = {};       ///< the image's modify timestamp, in nanoseconds by an OSD's clock:
                                               ///< another client's last write, or the last stage. Nothing: unknown, or
                                               ///< our own writes change it
  std::uint64_t version =
      0;  ///< version of the image's header. Every change of the header or its lock raises it; a watch does not
  Features features = {};  ///< by the present header
};

/// Returns the host in a client's address: "10.0.0.1" for "10.0.0.1:0/123456789".
constexpr std::string_view host_of(std::string_view address) { return address.substr(0, address.rfind(':')); }

/// A client that has some image open.
struct ImageUser {
  std::string image;    ///< "pool/namespace/image"
  std::string address;  ///< "10.0.0.1:0/123456789"
  std::string client;   ///< "client.4119"
};

struct ImageUsers {
  std::vector<ImageUser> users;
  std::string incomplete = {};  ///< images that could not be examined; empty: none
};

/// Content of an image's header, read without opening the image. Opening sets a watch, which changes break_time.
struct Header {
  std::uint64_t version = 0;    ///< see Ownership::version
  std::int64_t break_time = 0;  ///< value that break_dead_lock() left, if the header has not changed since
  Features features = {};
};

}  // namespace corbd::image
