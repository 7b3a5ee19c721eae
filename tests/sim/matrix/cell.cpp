#include "cell.hpp"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

namespace corbd::matrix {
namespace {

using Contents = Combination::Contents;
using Moment = plan::NotServed::Moment;

bool is_served(const Cell& cell) { return plan::find_not_served(Moment::stage, combination_of(cell)) == nullptr; }

/// Of what the request wants.
Cell filled(Cell cell) {
  cell.origin = Origin::earlier;
  return cell;
}

bool can_be(const Cell& cell) {
  // Otherwise it is krbd.
  if (cell.mounter == plan::Mounter::krbd_if_able && (cell.feature_bits() & ~kKernelFeatures) == 0) return false;
  if (cell.block() && cell.access == Access::ro_by_mount) return false;
  switch (cell.origin) {
    case Origin::nothing:
    case Origin::earlier:
      return true;
    case Origin::other_filesystem:
      return !cell.block();
    case Origin::unencrypted:
      return cell.encryption != Encryption::none;
    case Origin::ceph_csi_runs:
    case Origin::ceph_csi_left:
    case Origin::without_record:
    case Origin::adopted:
      return is_served(filled(cell));
  }
  return false;
}

boost::json::value verdict(Moment moment, const Combination& of) {
  const auto* row = plan::find_not_served(moment, of);
  return row == nullptr ? boost::json::value() : boost::json::value(boost::json::string(row->why));
}

}  // namespace

bool Cell::reads() const {
  return access == Access::one_reader || access == Access::many_readers || access == Access::ro_by_mount ||
         access == Access::ro_by_map;
}

bool Cell::by_ceph_csi() const { return has_pod() || origin == Origin::ceph_csi_left; }

std::uint64_t Cell::feature_bits() const {
  constexpr std::uint64_t layering = 1, object_map = 8, fast_diff = 16, journaling = 64;
  switch (features) {
    case Features::plain:
      return layering;
    case Features::exclusive_lock:
      return layering | image::kExclusiveLock;
    case Features::object_map:
      return layering | image::kExclusiveLock | object_map | fast_diff;
    case Features::journaling:
      return layering | image::kExclusiveLock | journaling;
  }
  return 0;
}

std::string Cell::filesystem_there() const {
  const std::string wanted = use.empty() ? "ext4" : fstype();
  switch (origin) {
    case Origin::nothing:
      return "";
    case Origin::other_filesystem:
      return wanted == "xfs" ? "ext4" : "xfs";
    case Origin::unencrypted:
      return block() ? "ext4" : wanted;
    default:
      return wanted;
  }
}

std::string_view name(plan::Mounter mounter) {
  switch (mounter) {
    case plan::Mounter::nbd:
      return "rbd-nbd";
    case plan::Mounter::krbd:
      return "rbd";
    case plan::Mounter::krbd_if_able:
      return "rbd-or-nbd";
  }
  return "";
}

std::string_view name(Encryption encryption) {
  constexpr std::array<std::string_view, 4> names{"none", "luks", "integrity", "files"};
  return names.at(static_cast<std::size_t>(encryption));
}

std::string_view name(Access access) {
  constexpr std::array<std::string_view, 7> names{"one-pod",      "one-node",    "one-reader", "many-readers",
                                                  "many-writers", "ro-by-mount", "ro-by-map"};
  return names.at(static_cast<std::size_t>(access));
}

std::string_view name(Features features) {
  constexpr std::array<std::string_view, 4> names{"plain", "exclusive-lock", "object-map", "journaling"};
  return names.at(static_cast<std::size_t>(features));
}

std::string_view name(Origin origin) {
  constexpr std::array<std::string_view, 8> names{"nothing",       "earlier",       "other-filesystem", "unencrypted",
                                                  "ceph-csi-runs", "ceph-csi-left", "without-record",   "adopted"};
  return names.at(static_cast<std::size_t>(origin));
}

std::string text(const Cell& cell) {
  std::string all;
  for (const auto part : {name(cell.mounter), name(cell.encryption), cell.use.empty() ? "unnamed" : cell.use,
                          name(cell.access), name(cell.features), name(cell.origin)})
    all += (all.empty() ? "" : ", ") + std::string(part);
  return all;
}

std::string json(const Cell& cell) {
  const auto of = combination_of(cell);
  boost::json::object line{{"mounter", name(cell.mounter)},
                           {"encryption", name(cell.encryption)},
                           {"use", cell.use.empty() ? "unnamed" : cell.use},
                           {"access", name(cell.access)},
                           {"features", name(cell.features)},
                           {"origin", name(cell.origin)},
                           {"kernel", plan::is_for_kernel(of)},
                           {"stage", verdict(Moment::stage, of)},
                           {"expansion", verdict(Moment::expansion, of)},
                           {"rotation", verdict(Moment::rotation, of)},
                           {"reclaim", verdict(Moment::reclaim, of)}};
  return boost::json::serialize(line);
}

Combination combination_of(const Cell& cell) {
  Combination of;
  of.mounter = cell.mounter;
  of.encryption = cell.encryption;
  of.capability.block = cell.block();
  of.capability.fstype = cell.fstype();
  of.capability.single_writer = cell.access == Access::one_pod;
  of.capability.shared = cell.access == Access::many_writers;
  of.capability.read_only = cell.reads() && cell.access != Access::ro_by_mount;
  if (cell.access == Access::ro_by_mount) of.capability.mount_flags = "ro";
  of.features = cell.feature_bits();
  of.kernel.features = kKernelFeatures;
  of.filesystem = cell.block() ? "" : cell.filesystem_there();
  of.left_unserved = cell.origin == Origin::ceph_csi_left || cell.origin == Origin::without_record;
  of.contents = cell.origin == Origin::nothing            ? Contents::nothing
                : cell.origin == Origin::other_filesystem ? Contents::other_filesystem
                : cell.origin == Origin::unencrypted      ? Contents::unencrypted
                                                          : Contents::wanted;
  return of;
}

std::vector<Cell> all_cells() {
  std::vector<Cell> all;
  for (const auto mounter : kMounters)
    for (const auto encryption : kEncryptions)
      for (const auto use : kUses)
        for (const auto access : kAccesses)
          for (const auto features : kFeatures)
            for (const auto origin : kOrigins)
              if (const Cell cell{mounter, encryption, use, access, features, origin}; can_be(cell))
                all.push_back(cell);
  return all;
}

}  // namespace corbd::matrix
