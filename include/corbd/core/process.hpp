// What the process as a whole does once, before anything else.
#pragma once

#include <cstdint>
#include <string>

#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"

namespace corbd {

/// Opens /dev/null where stdin, stdout or stderr is closed: otherwise a file of ours gets that number, and the log is
/// written into it.
void fill_standard_streams();
/// As many descriptors as the system allows: every device, connection and call needs some. Returns how many.
std::uint64_t raise_descriptor_limit();
/// PR_SET_IO_FLUSHER: our allocations must not wait for writeback that waits for us. Per thread and inherited: before
/// any thread exists. Without CAP_SYS_RESOURCE it fails; the agent then runs with a warning.
result<> become_io_flusher();
/// No core dump and no debugger without CAP_SYS_PTRACE: this process's memory has keys. Again in every program that it
/// becomes: execve(2) allows them again, but for the limit. /proc/<pid> is root's from then on.
void forbid_core_dumps();
/// Whether this process, or the one that started it, has forbidden them by the limit.
bool core_dumps_forbidden();
/// SIGPIPE ignored; a crash prints a backtrace on stderr.
void install_signal_handlers();
/// Holds the folder for this process until the fd closes. in_use names the holder's pid. The kernel frees it at any
/// death. A full disk is no hindrance once the folder has been held before.
result<Fd> lock_folder(const std::string& folder);
/// The running boot's id.
result<std::string> read_boot_id();
/// failed_precondition unless the folder is on tmpfs: what is in it must be gone with a reboot and never on a disk.
result<> check_tmpfs(const std::string& folder);

}  // namespace corbd
