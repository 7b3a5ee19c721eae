// ceph-csi's file beside a staged volume: image-meta.json in the staging path, version 3 (ceph-csi's rbd_util.go). The
// agent reads the files that ceph-csi wrote, and writes one for each volume that it stages, so that either can follow
// the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/core/fields.hpp"
#include "corbd/core/result.hpp"

namespace corbd::cephcsi {

/// The content of image-meta.json, as far as the agent uses it.
struct Stash {
  std::string pool, ns, image;
  std::string unmap_options;
  bool nbd = false;          ///< mapped by rbd-nbd; otherwise by the kernel's rbd
  bool encrypted = false;    ///< uses LUKS
  std::string device;        ///< "/dev/nbd0"; only with nbd, and empty until it is mapped
  std::string log_dir;       ///< folder of rbd-nbd's log file
  std::string log_strategy;  ///< treatment of that file at unmap: "remove", "compress", "preserve"; only with nbd
  /// UID of the VolumeAttachment under which this agent served it last; empty: not known, or ceph-csi staged it.
  /// ceph-csi ignores the key, and drops it when it writes the file itself.
  std::string attachment = "";
  /// rbd-nbd lost writes of that device, and no operator has accepted that yet. The record says so, too, but people
  /// remove records. ceph-csi treats the key as the one above.
  bool cache_lost = false;
  /// In the order of ceph-csi's Go.
  static constexpr std::tuple fields{fields::added("pool", &Stash::pool),
                                     fields::added("radosNamespace", &Stash::ns),
                                     fields::added("image", &Stash::image),
                                     fields::added("unmapOptions", &Stash::unmap_options),
                                     fields::added("accessType", &Stash::nbd),
                                     fields::added("encrypted", &Stash::encrypted),
                                     fields::added("device", &Stash::device),
                                     fields::added("logDir", &Stash::log_dir),
                                     fields::added("logFileStrategy", &Stash::log_strategy),
                                     fields::rare("corbdAttachmentUID", &Stash::attachment),
                                     fields::rare("corbdCacheLost", &Stash::cache_lost)};
  bool operator==(const Stash&) const = default;
};

/// "<staging path>/image-meta.json"
std::string stash_file(const std::string& staging_path);

/// Returns the log file of a volume's rbd-nbd if it is to be removed with the device, as ceph-csi does
/// (docs/sources.md#log-file); otherwise "".
std::string log_to_remove(const Stash& stash, const std::string& volume_id);

/// state_corrupt gives the reason. Keys are matched without regard to case, as in Go; absent ones have their zero
/// value.
result<Stash> parse_stash(std::string_view json);
/// Returns the version of the file's format; 0: it has none.
std::int64_t stash_version(std::string_view json);
/// Returns the same bytes as ceph-csi's Go. The agent's own keys come after them, those that have a value.
std::string encode(const Stash& stash);

}  // namespace corbd::cephcsi
