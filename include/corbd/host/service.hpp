// What systemd hears from a service of Type=notify (sd_notify(3)). Without NOTIFY_SOCKET, as by hand or in a pod,
// nobody is told. The calls may wait for systemd: not for the control thread.
#pragma once

#include <sys/types.h>

#include <string>

namespace corbd::host {

/// This process answers callers.
void tell_ready();

/// `next` is the service's main process from now on, so that the end of this one is not the service's. Returns once
/// systemd knows, or after a second. A process of another control group is none of the service's: systemd is not told,
/// and restarts the service when this process ends.
void tell_successor(pid_t next);

/// Whether both processes are in one control group.
bool same_group(const std::string& proc, pid_t one, pid_t other);

}  // namespace corbd::host
