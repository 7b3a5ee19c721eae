// From what a person writes to a mount of the manager, and back from its claim. No call but reading key files.
#pragma once

#include <string>

#include "corbd/cli/mounts.hpp"
#include "corbd/core/result.hpp"
#include "corbd/manager/values.hpp"

namespace corbd::cli {

/// invalid_argument: image and dir do not make sense together. The errors name the option that helps.
result<manager::Mount> mount_of(const Mounts::Wish& wish);
/// What made the claim, so that it can be mounted again: keys are read again, because no claim has one.
Mounts::Wish wish_of(const manager::Claim& claim);

/// A file of mounts.d: "key = value" lines, '#' before comments. Keys have the names of the options of `corbd mount`,
/// without dashes in front. invalid_argument names the line.
result<Mounts::Wish> parse_mount_file(std::string_view text);
/// Every *.conf of the folder, by name, with its path. No folder: none.
struct MountFile {
  std::string path;
  result<Mounts::Wish> wish;
};
std::vector<MountFile> read_mount_files(const std::string& folder);

/// A service unit that mounts at boot. `program`: path of corbd.
std::string unit_of(const Mounts& ask, const std::string& program);

}  // namespace corbd::cli
