// Ends the service of a volume by one client without notice to the kernel: for the next agent, or for this agent's next
// client.
#pragma once

#include <chrono>

#include "corbd/volume/ports.hpp"
#include "volume.hpp"

namespace corbd::volume {

/// An older request means that the cluster does not answer it.
inline constexpr std::chrono::seconds kAnswersWithin{1};

/// The next owner of the socket: a session of this agent, which finds it among the devices' links, or the next agent.
enum class For { this_agent, next_agent };

/// Answers what was read, keeps the lock or the mark, takes the socket from the link, and closes the image, which stays
/// in the volume until take_image(). Requires a link that serves. Returns the socket for the next agent, and nothing
/// for this one. An error: the link is drained, and has ended unless the volume is still served; if the image did not
/// close in time, the socket waits to be resumed. `drained_by`: until then the volume can still be served on as if
/// nothing had been asked.
task<result<Fd>> release(Volume& volume, const Ports& ports, For whom, Until drained_by, Until closed_by);

}  // namespace corbd::volume
