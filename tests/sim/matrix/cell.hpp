// The cells of the matrix: every request for a volume that the dimensions allow, and what the table of
// corbd/plan/combination.hpp says of each.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/plan/combination.hpp"

namespace corbd::matrix {

using plan::Combination;
using Encryption = Combination::Encryption;

enum class Access { one_pod, one_node, one_reader, many_readers, many_writers, ro_by_mount, ro_by_map };
enum class Features { plain, exclusive_lock, object_map, journaling };
/// What was there before the stage that is looked at.
enum class Origin {
  nothing,           ///< an empty image
  earlier,           ///< an image that an earlier stage of ours filled
  other_filesystem,  ///< one that holds a filesystem of another type
  unencrypted,       ///< one that holds a filesystem, although encryption is wanted
  ceph_csi_runs,     ///< ceph-csi staged it, and a pod uses it
  ceph_csi_left,     ///< ceph-csi staged it, its pod has ended, and its rbd-nbd was killed
  without_record,    ///< staged by us, and the state directory was lost
  adopted            ///< ceph-csi staged it, a pod uses it, and this agent has taken it over
};

inline constexpr std::array kMounters{plan::Mounter::nbd, plan::Mounter::krbd, plan::Mounter::krbd_if_able};
inline constexpr std::array kEncryptions{Encryption::none, Encryption::device, Encryption::with_integrity,
                                         Encryption::files};
/// The type of filesystem, "" in a request that names none, or "block".
inline constexpr std::array<std::string_view, 6> kUses{"ext4", "ext3", "xfs", "btrfs", "", "block"};
inline constexpr std::array kAccesses{Access::one_pod,      Access::one_node,     Access::one_reader,
                                      Access::many_readers, Access::many_writers, Access::ro_by_mount,
                                      Access::ro_by_map};
inline constexpr std::array kFeatures{Features::plain, Features::exclusive_lock, Features::object_map,
                                      Features::journaling};
inline constexpr std::array kOrigins{Origin::nothing,        Origin::earlier,       Origin::other_filesystem,
                                     Origin::unencrypted,    Origin::ceph_csi_runs, Origin::ceph_csi_left,
                                     Origin::without_record, Origin::adopted};

struct Cell {
  plan::Mounter mounter;
  Encryption encryption;
  std::string_view use;
  Access access;
  Features features;
  Origin origin;

  bool block() const { return use == "block"; }
  std::string fstype() const { return block() ? "" : std::string(use); }
  bool reads() const;
  bool by_ceph_csi() const;
  bool has_pod() const { return origin == Origin::ceph_csi_runs || origin == Origin::adopted; }
  std::uint64_t feature_bits() const;
  /// The type on the image before the stage; "" if there is none.
  std::string filesystem_there() const;
};

std::string_view name(plan::Mounter mounter);
std::string_view name(Encryption encryption);
std::string_view name(Access access);
std::string_view name(Features features);
std::string_view name(Origin origin);
/// "nbd, luks, ext4, one-node, exclusive-lock, nothing"
std::string text(const Cell& cell);
/// One line of JSON: the dimensions, what each moment says, and what serves it.
std::string json(const Cell& cell);

/// Features of an image that the fake kernel's client knows: all but journaling, as the real one's.
inline constexpr std::uint64_t kKernelFeatures = 0x1bf;
Combination combination_of(const Cell& cell);
/// The cells that can occur: only a filesystem has mount flags, and what cannot be staged was never staged before.
std::vector<Cell> all_cells();

}  // namespace corbd::matrix
