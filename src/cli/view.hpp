// How the agent's answers are shown. Pure: the caller passes the time.
#pragma once

#include <string>

#include "corbd/v1/admin.pb.h"

namespace corbd::cli {

/// Also the exit codes of `corbd status`.
enum class Verdict { ok = 0, warning = 1, critical = 2 };
std::string name(Verdict verdict);

/// "reconnecting"; for a state that this version does not know, the number.
std::string word(v1::Health health);

/// Critical: requests wait or fail, and that does not pass by itself. Warning: it may.
Verdict verdict(v1::Health health);
Verdict verdict(const v1::Cluster& cluster);
Verdict verdict(const v1::GetStatusResponse& status);

std::string status_screen(const v1::GetStatusResponse& status);
/// The columns are those of `rbd device list`, then our own. now_ms: since 1970.
std::string volumes_table(const v1::ListVolumesResponse& volumes, bool wide, std::int64_t now_ms);
std::string volume_page(const v1::GetVolumeResponse& volume, std::int64_t now_ms);
/// One line without its line end.
std::string event_line(const v1::Change& change);

}  // namespace corbd::cli
