// Mounts and uses of a volume at the paths of a wish.
#pragma once

#include <algorithm>
#include <string>

#include "filesystem.hpp"

namespace corbd::plan {

/// Whether anything is mounted there.
inline bool mounted_at(const Situation& view, const std::string& path) {
  return std::any_of(view.seen.mounts.begin(), view.seen.mounts.end(),
                     [&](const auto& mount) { return mount.target == path; });
}

inline bool ours_at(const Situation& view, const std::string& path) { return our_mount_at(view, path) != nullptr; }

inline const Staging* staging_at(const Record& record, const std::string& path) {
  const auto place = std::find_if(record.stagings.begin(), record.stagings.end(),
                                  [&](const auto& staging) { return staging.path == path; });
  return place == record.stagings.end() ? nullptr : &*place;
}

/// Returns the wish's capability in the volume's terms: another default mounter reads other map options, and a request
/// without a type of filesystem takes the existing one.
template <class Wished>
Capability as_served(const Record& record, const Wished& wish) {
  Capability wanted = wish.capability;
  if (wish.read_only_otherwise == record.use.read_only) wanted.read_only = record.use.read_only;
  if (!wanted.block && wanted.fstype.empty() && !record.stagings.empty())
    wanted.fstype = record.stagings.front().capability.fstype;
  return with_fstype(std::move(wanted));
}

/// Returns why the two cannot be one use of a volume; empty: they can. Other mount flags are no conflict: a caller has
/// no way out of a refusal while pods run, so they wait for the next stage.
std::string conflict(const Capability& has, const Capability& wanted);

/// Whether a pod still has what was published there. A reboot, or somebody who removed a pod's folder, leaves the
/// record behind.
inline bool is_there(const Situation& view, const Publish& publish) {
  return ours_at(view, publish.target) || shows_device_that_is_gone(view, publish.target);
}

inline Step write(Record record) { return step::WriteRecord{std::move(record)}; }

}  // namespace corbd::plan
