// Settings and questions of the process as a whole.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"

namespace corbd {

/// Whether a write of at most PIPE_BUF bytes to stderr would not wait: a full pipe that nobody reads must not keep a
/// process from ending.
bool stderr_takes_text();
void write_to_stderr(std::string_view text);
/// Opens /dev/null where stdin, stdout or stderr is closed: otherwise a file of ours gets that number, and the log is
/// written into it.
void fill_standard_streams();
/// Raises the limit to as many descriptors as the system allows, because every device, connection and call needs some.
/// Returns the new limit.
std::uint64_t raise_descriptor_limit();
/// Sets PR_SET_IO_FLUSHER: our allocations must not wait for writeback that waits for us. The flag is per thread and
/// inherited, so call this before any other thread exists. It fails without CAP_SYS_RESOURCE; the agent then runs with
/// a warning.
result<> become_io_flusher();
/// Forbids core dumps, and debuggers without CAP_SYS_PTRACE: this process's memory has keys. Call it again in every
/// program that the process becomes: execve(2) keeps only the limit. From then on /proc/<pid> belongs to root.
void forbid_core_dumps();
/// Whether this process, or its parent, has forbidden core dumps by the limit.
bool core_dumps_forbidden();
/// Ignores SIGPIPE, and lets a crash print a backtrace on stderr.
void install_signal_handlers();
/// Locks the folder for this process until the fd closes. in_use names the holder's pid. The kernel frees the lock
/// however the process dies. It works on a full disk once the folder has been locked before.
result<Fd> lock_folder(const std::string& folder);
/// Writes our pid into the lock file: another process handed the lock to us.
result<> note_lock_holder(const std::string& folder, const Fd& lock);
/// Executes this program anew with the same arguments: every thread ends, every descriptor but stdin, stdout and stderr
/// is closed, memory is gone. Returns only if the kernel refuses.
void begin_anew();
/// Returns a variable of the environment; empty: unset.
std::string environment(const char* name);
/// Returns the parent of process `pid`; 0: it has ended, or is unknown. `proc`: "/proc".
pid_t parent_of(const std::string& proc, pid_t pid);
/// Returns `uname -r`.
std::string kernel_release();
/// Returns the ID of the running boot.
result<std::string> read_boot_id();
/// failed_precondition unless the folder is on tmpfs: its content must go with a reboot and must never reach a disk.
result<> check_tmpfs(const std::string& folder);

}  // namespace corbd
