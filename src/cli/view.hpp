// Formats the agent's answers. Pure: the caller passes the time.
#pragma once

#include <string>

#include "corbd/v1/admin.pb.h"

namespace corbd::cli {

/// "OK", "Warning" or "Critical". A verdict that an older agent does not give is a warning.
std::string word(v1::Verdict verdict);
/// Exit code of `corbd status`: 0 OK, 1 warning, 2 critical.
int exit_code(const v1::GetStatusResponse& status);

/// "reconnecting", for example; the number for a state that this version does not know.
std::string word(v1::Health health);

/// Output of `corbd version`.
std::string program_view(const v1::Program& program);
std::string status_screen(const v1::GetStatusResponse& status);
/// The columns are those of `rbd device list`, then our own. now_ms: since 1970.
std::string volumes_table(const v1::ListVolumesResponse& volumes, bool wide, std::int64_t now_ms);
std::string volume_page(const v1::GetVolumeResponse& volume, std::int64_t now_ms);
/// One line without its line end.
std::string event_line(const v1::Change& change);

}  // namespace corbd::cli
