// Times as people, Kubernetes and logs read them.
#pragma once

#include <chrono>
#include <string>

namespace corbd {

/// "2026-11-22T12:03:04Z": whole seconds of UTC, as Kubernetes writes them.
std::string utc_text(std::chrono::system_clock::time_point at);

}  // namespace corbd
