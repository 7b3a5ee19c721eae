// mounters.json: which client serves volumes whose own attributes cannot be changed any more, because a
// PersistentVolume keeps them for life. It lies beside ceph-csi's config.json. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/cephcsi/parameters.hpp"
#include "corbd/core/result.hpp"

namespace corbd::cephcsi {

/// {"clusterID": "c", "pool": "p", "storageClass": "s", "mounter": "rbd-nbd"}. What it leaves out fits any volume.
struct MounterRule {
  std::optional<std::string> cluster_id, pool, storage_class;
  Mounter mounter = Mounter::nbd;  ///< nbd or krbd
  bool operator==(const MounterRule&) const = default;
};
using MounterRules = std::vector<MounterRule>;

/// A list of rules. invalid_argument names the rule by its number, and the key: also one that is not known, because a
/// misspelt condition would make a rule fit every volume.
result<MounterRules> parse_mounter_rules(std::string_view text);

/// What is known of a volume when it is staged.
struct MounterCase {
  std::string cluster_id, pool;              ///< pool: its name; empty: the attributes do not tell
  std::optional<std::string> storage_class;  ///< nullopt: nobody has asked; empty: it has none
};
MounterCase mounter_case(const std::string& volume_id, const Attributes& attributes);

/// The first rule that fits decides.
struct MounterChoice {
  std::optional<Mounter> mounter;  ///< nullopt: no rule fits, so its own attributes count
  bool ask_storage_class = false;  ///< a rule before that one would fit with a certain StorageClass
  bool operator==(const MounterChoice&) const = default;
};
MounterChoice choose_mounter(const MounterRules& rules, const MounterCase& of);

}  // namespace corbd::cephcsi
