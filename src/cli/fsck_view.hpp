// The texts of `corbd fsck`. Pure.
#pragma once

#include <string>

#include "corbd/v1/admin.pb.h"

namespace corbd::cli {

/// One line for people, while the check waits or works.
std::string fsck_progress(const std::string& id, const v1::FsckResponse& check);
/// Why the command does not wait any longer.
std::string fsck_gave_up(const std::string& id, const v1::FsckResponse& check, int seconds);
std::string fsck_result(const std::string& id, const v1::FsckResponse& check);

}  // namespace corbd::cli
