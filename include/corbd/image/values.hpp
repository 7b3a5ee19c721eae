// What is said of images and of who has them: values, without a cluster.
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
  std::string fsid;  ///< the cluster's
  std::int64_t pool_id = -1;
  std::string ns;             ///< RADOS namespace, "" is the default one
  std::string image_id;       ///< librbd's internal id
  std::uint64_t snap_id = 0;  ///< 0: the head

  static constexpr std::tuple fields{fields::required("fsid", &Key::fsid), fields::required("pool_id", &Key::pool_id),
                                     fields::required("ns", &Key::ns), fields::required("image_id", &Key::image_id),
                                     fields::required("snap_id", &Key::snap_id)};
  auto operator<=>(const Key&) const = default;
  /// "fsid/pool/ns/id@snap", for logs.
  std::string text() const {
    return fsid + "/" + std::to_string(pool_id) + "/" + ns + "/" + image_id +
           (snap_id == 0 ? "" : "@" + std::to_string(snap_id));
  }
};

/// Which OSD answers an image's reads: the primary, any that has the data, or the nearest by the CRUSH map.
enum class ReadPolicy { primary, balance, localize };
constexpr std::string_view name(ReadPolicy policy) {
  return policy == ReadPolicy::balance ? "balance" : policy == ReadPolicy::localize ? "localize" : "primary";
}

/// The image as a request names it.
struct Name {
  std::string pool, ns, image;
  std::string text() const { return pool + "/" + (ns.empty() ? "" : ns + "/") + image; }
  static constexpr std::tuple fields{fields::required("pool", &Name::pool), fields::required("ns", &Name::ns),
                                     fields::required("image", &Name::image)};
  bool operator==(const Name&) const = default;
};

/// What ceph-csi's provisioner reserved, as the volume ID says it. The provisioner's journal in the cluster knows the
/// image's name.
struct Reserved {
  std::int64_t pool_id = -1;  ///< of the image
  std::string uuid;
  std::string journal_pool = {};  ///< where the journal is if it has nothing in the image's pool; "": nowhere else
  std::string image = {};         ///< the name if no journal knows it; "": csi-vol-<uuid>
  bool operator==(const Reserved&) const = default;
};

/// Where the image of such a volume may be.
struct Place {
  std::string cluster_id;  ///< as Access has it
  std::int64_t pool_id = -1;
  bool operator==(const Place&) const = default;
};

/// What a provisioner writes into an image's metadata about whom it is for begins with this (ceph-csi's --setmetadata).
inline constexpr std::string_view kProvisionedFor = "csi.storage.k8s.io/";

struct Resolved {
  Key key;
  std::uint64_t size = 0;  ///< bytes
  bool exclusive_lock = false;
  Features features = {};
  std::string cluster_id = {};       ///< where it was found, as Access has it
  Name name = {};                    ///< at that time
  std::string kms_id = {};           ///< of an encrypted volume, by its journal; "": not encrypted, or no journal
  std::string encryption_type = {};  ///< by its journal: "block", "file", or "" where it says nothing
  std::string tenant = {};           ///< namespace of its claim, by its journal; "": not known
  std::map<std::string, std::string> provisioned_for = {};  ///< its metadata below kProvisionedFor
};

/// Who holds an image's lock, and who watches it. Addresses as Ceph prints them: "10.0.0.1:0/123456789".
struct Ownership {
  enum class Lock {
    none,
    mine,
    our_dead,
    other
  } lock = Lock::none;      ///< our_dead: an address of a dead incarnation of this agent
  std::string owner;        ///< the lock owner's address, if any
  std::string cookie = {};  ///< of its lock: which of that client's open images has it
  std::vector<std::string>
      foreign_watchers;     ///< not this client, no dead incarnation of ours, no rbd-mirror; a pure reader has no watch
  std::string writer = {};  ///< of an image without exclusive-lock: the client that marked it as its own to write and
                            ///< took no mark away. None of ours; it may be dead. Empty: none
  bool writer_signed = false;  ///< that mark was made with the Ceph key that this agent has too
  bool handed_over = false;    ///< the mark is that of the predecessor, which closed the image to give it to this one
  bool marked = false;         ///< the mark is this very client's
  std::map<std::string, std::string> clients = {};  ///< address to "client.4119", for the owner and the watchers
  std::string self;                                 ///< this client's address
  std::optional<std::uint64_t> modified = {};  ///< the image's modify timestamp, in nanoseconds by an OSD's clock: when
                                               ///< another client wrote last, or a volume of it was staged. Nothing:
                                               ///< not known, or our own writes move it
  std::uint64_t version =
      0;  ///< of the image's header. Every change of the header or its lock raises it; a watch does not
  Features features = {};  ///< as the header has them now
};

/// The host in a client's address: "10.0.0.1" for "10.0.0.1:0/123456789".
constexpr std::string_view host_of(std::string_view address) { return address.substr(0, address.rfind(':')); }

/// A client that has some image open.
struct ImageUser {
  std::string image;    ///< "pool/namespace/image"
  std::string address;  ///< "10.0.0.1:0/123456789"
  std::string client;   ///< "client.4119"
};

struct ImageUsers {
  std::vector<ImageUser> users;
  std::string incomplete = {};  ///< which images could not be looked at; empty: none
};

/// What an image's header tells without opening the image. Opening sets a watch, which changes break_time.
struct Header {
  std::uint64_t version = 0;    ///< as Ownership::version
  std::int64_t break_time = 0;  ///< what break_dead_lock() left, if nothing was done to the header since
  Features features = {};
};

}  // namespace corbd::image
