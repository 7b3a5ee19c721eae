// mounters.json: chooses the client of volumes whose own attributes cannot be changed any more, because a
// PersistentVolume keeps them for life. It lies beside ceph-csi's config.json. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/cephcsi/parameters.hpp"
#include "corbd/core/result.hpp"

namespace corbd::cephcsi {

/// A rule: {"clusterID": "c", "pool": "p", "storageClass": "s", "mounter": "rbd-nbd"}. An omitted key matches any
/// volume.
struct MounterRule {
  std::optional<std::string> cluster_id, pool, storage_class;
  Mounter mounter = Mounter::nbd;  ///< nbd or krbd
  bool operator==(const MounterRule&) const = default;
};
using MounterRules = std::vector<MounterRule>;

/// Parses a list of rules. invalid_argument names the rule by its number, and the key. An unknown key is an error,
/// because a misspelt condition would match every volume.
result<MounterRules> parse_mounter_rules(std::string_view text);

/// Facts about a volume when it is staged.
struct MounterCase {
  std::string cluster_id, pool;              ///< pool: its name; empty: the attributes do not name it
  std::optional<std::string> storage_class;  ///< nullopt: not asked yet; empty: it has none
};
MounterCase mounter_case(const std::string& volume_id, const Attributes& attributes);

/// The first matching rule decides.
struct MounterChoice {
  std::optional<Mounter> mounter;  ///< nullopt: no rule matches, so the volume's own attributes count
  bool ask_storage_class = false;  ///< a rule before that one would match one particular StorageClass
  bool operator==(const MounterChoice&) const = default;
};
MounterChoice choose_mounter(const MounterRules& rules, const MounterCase& of);

}  // namespace corbd::cephcsi
