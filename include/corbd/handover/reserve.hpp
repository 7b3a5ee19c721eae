// Two pods of one DaemonSet beside each other on a node. kubelet starts a container that ended again, so an agent that
// handed over must not end, nor ask for the devices anew: they would go to and fro. It stays in reserve instead.
#pragma once

#include <chrono>
#include <string>

#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/time.hpp"

namespace corbd::handover {

/// The pod whose agent handed over last and has not served since, by its UID. Empty: there is none. The note goes with
/// the boot, and a pod that is started anew then asks as any other does.
std::string pod_in_reserve(const std::string& runtime_dir);
/// Do this before the devices are given: who dies in between is started again, and must know.
result<> note_pod_in_reserve(const std::string& runtime_dir, const std::string& pod);
/// `pod` serves from now on.
void leave_reserve(const std::string& runtime_dir, const std::string& pod);

/// Says that an agent's process of this pod lives, for as long as that has it open: its own file,
/// <runtime_dir>/pods/UID, which is empty then. Invalid: it cannot be made, and nobody sees that this pod lives.
Fd say_pod_lives(const std::string& runtime_dir, const std::string& pod);
/// The same for its keeper, in a file of its own: an agent may be dead meanwhile.
Fd say_keeper_lives(const std::string& runtime_dir, const std::string& pod);
/// Writes into the file of say_pod_lives() that the control thread runs, for `corbd-probe` (handover/pulse.hpp).
/// `why_not_ready`: empty if it is. It never waits: that folder is on tmpfs.
void note_pulse(int pod_file, const std::string& why_not_ready);
/// The agent leaves, or hands over, and writes no further line. A probe that found its pod not ready would wait, and be
/// killed with the process: an Event without a reason. So this one says yes until the process ends. It counts as hung
/// if it takes much longer than `leaves_within`.
void note_last_pulse(int pod_file, std::chrono::milliseconds leaves_within);
/// From now on the control thread may take long: the process is alive as long as it has the file.
void end_pulse(int pod_file);
bool pod_lives(const std::string& runtime_dir, const std::string& pod);

/// The agent that serves is told to end: the pod in reserve shall ask for the devices. False: no other pod is there.
result<bool> call_reserve(const std::string& runtime_dir, const std::string& own_pod);

/// Waits until no agent has had the state directory for `free_for`, and locks it; or until this pod is called, without
/// a lock. A signal ends the process: it holds nothing.
result<Fd> wait_in_reserve(const std::string& state_dir, const std::string& runtime_dir, const std::string& pod,
                           duration free_for);

}  // namespace corbd::handover
