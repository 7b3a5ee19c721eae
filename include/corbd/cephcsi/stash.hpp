// What ceph-csi keeps beside a staged volume: image-meta.json in the staging path, version 3 (ceph-csi's rbd_util.go).
// Read of what ceph-csi staged, and written for what this agent stages, so that either can follow the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/core/fields.hpp"
#include "corbd/core/result.hpp"

namespace corbd::cephcsi {

struct Stash {
  std::string pool, ns, image;
  std::string unmap_options;
  bool nbd = false;          ///< mapped by rbd-nbd; otherwise by the kernel's rbd
  bool encrypted = false;    ///< with LUKS
  std::string device;        ///< "/dev/nbd0"; of nbd only, and empty until it is mapped
  std::string log_dir;       ///< of rbd-nbd's log file, and
  std::string log_strategy;  ///< what becomes of it at unmap: "remove", "compress", "preserve"; of nbd only
  /// UID of the VolumeAttachment under which this agent served it last; empty: not known, or ceph-csi staged it.
  /// ceph-csi ignores the key, and drops it when it writes the file itself.
  std::string attachment = "";
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
                                     fields::rare("corbdAttachmentUID", &Stash::attachment)};
  bool operator==(const Stash&) const = default;
};

/// "<staging path>/image-meta.json"
std::string stash_file(const std::string& staging_path);

/// The log file of a volume's rbd-nbd, if that is to go when the device does, as ceph-csi does it
/// (docs/sources.md#log-file); otherwise "".
std::string log_to_remove(const Stash& stash, const std::string& volume_id);

/// state_corrupt with the reason. Keys are matched as Go does it: without regard to case; absent ones have their zero
/// value.
result<Stash> parse_stash(std::string_view json);
/// Of the file's format; 0: it has none.
std::int64_t stash_version(std::string_view json);
/// The bytes that ceph-csi's Go writes for the same; the attachment, if there is one, comes after them.
std::string encode(const Stash& stash);

}  // namespace corbd::cephcsi
