// Notifies systemd for a service of Type=notify (sd_notify(3)). Without NOTIFY_SOCKET, as by hand or in a pod, the
// calls do nothing. They may wait for systemd, so the control thread must not make them.
#pragma once

#include <sys/types.h>

#include <string>

namespace corbd::host {

/// Reports that this process answers callers.
void tell_ready();

/// Makes `next` the service's main process, so that the end of this one is not the service's. Returns once systemd
/// knows, or after a second. If `next` is in another control group it does not belong to the service: systemd is not
/// told, and restarts the service when this process ends.
void tell_successor(pid_t next);

/// Whether both processes are in one control group.
bool same_group(const std::string& proc, pid_t one, pid_t other);

}  // namespace corbd::host
