// What a volume has at the paths of a wish.
#pragma once

#include <algorithm>
#include <string>

#include "filesystem.hpp"

namespace corbd::plan {

/// Whatever it is.
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

/// The wish's capability as the client that serves the volume has it: another default mounter reads other map options.
template <class Wished>
Capability as_served(const Record& record, const Wished& wish) {
  Capability wanted = wish.capability;
  if (wish.read_only_otherwise == record.read_only) wanted.read_only = record.read_only;
  return wanted;
}

inline Step write(Record record) { return step::WriteRecord{std::move(record)}; }

}  // namespace corbd::plan
