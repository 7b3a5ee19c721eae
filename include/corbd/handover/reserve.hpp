// Two pods of one DaemonSet side by side on a node. kubelet restarts a container that ended, so an agent that handed
// over must not end, nor ask for the devices again: they would go back and forth. It stays in reserve instead.
#pragma once

#include <chrono>
#include <string>

#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/time.hpp"

namespace corbd::handover {

/// Returns the UID of the pod whose agent handed over last and has not served since. Empty: there is none. The note is
/// gone after a reboot, and a restarted pod then asks as any other does.
std::string pod_in_reserve(const std::string& runtime_dir);
/// Call this before the devices are handed over: an agent that dies in between is restarted, and must know.
result<> note_pod_in_reserve(const std::string& runtime_dir, const std::string& pod);
/// Notes that `pod` serves from now on.
void leave_reserve(const std::string& runtime_dir, const std::string& pod);

/// Opens the pod's own file, <runtime_dir>/pods/UID, which is empty then. While a process has it open, an agent's
/// process of this pod lives. Invalid: it cannot be made, and nobody sees that this pod lives.
Fd say_pod_lives(const std::string& runtime_dir, const std::string& pod);
/// Does the same for the pod's keeper, in a file of its own: the agent may be dead meanwhile.
Fd say_keeper_lives(const std::string& runtime_dir, const std::string& pod);
/// Writes into the file of say_pod_lives() that the control thread runs, for `corbd-probe` (handover/pulse.hpp).
/// `why_not_ready`: empty if it is ready. It never waits: that folder is on tmpfs.
void note_pulse(int pod_file, const std::string& why_not_ready);
/// Writes the last line of an agent that leaves or hands over. A probe that found its pod not ready would wait, and be
/// killed with the process: an Event without a reason. So this line says ready until the process ends. The agent counts
/// as hung if that takes much longer than `leaves_within`.
void note_last_pulse(int pod_file, std::chrono::milliseconds leaves_within);
/// Says that the control thread may block from now on: the process counts as alive while it has the file open.
void end_pulse(int pod_file);
bool pod_lives(const std::string& runtime_dir, const std::string& pod);

/// Calls the pod in reserve, which shall ask for the devices, because the serving agent is told to end. False: there is
/// no other pod.
result<bool> call_reserve(const std::string& runtime_dir, const std::string& own_pod);

/// Waits until no agent has had the state directory for `free_for`, and locks it; or until this pod is called, without
/// a lock. A signal ends the process: it holds nothing.
result<Fd> wait_in_reserve(const std::string& state_dir, const std::string& runtime_dir, const std::string& pod,
                           duration free_for);

}  // namespace corbd::handover
