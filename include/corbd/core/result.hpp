// Results and error codes of the whole agent, and what a gRPC caller is told for each code. Exceptions stay inside a
// room; between rooms an operation returns result<T>.
#pragma once

#include <boost/system/result.hpp>
#include <string>
#include <string_view>

namespace corbd {

enum class errc {
  ok = 0,
  invalid_argument,     ///< The request itself is wrong; repeating it as it is cannot help.
  not_found,            ///< The volume, image, pool or path does not exist.
  already_exists,       ///< It exists already, with other arguments.
  failed_precondition,  ///< The request is right, the state of the node or image forbids it.
  permission_denied,    ///< The cluster user may not do this.
  unauthenticated,      ///< The cluster refused the key, or the volume the passphrase.
  unimplemented,        ///< This version knows the wish and does not serve it.
  out_of_range,         ///< A size or offset beyond what is possible.
  busy,                 ///< Another operation on the same volume is under way.
  exhausted,            ///< A bound of ours (calls, waiters, memory, devices) is reached.
  timed_out,            ///< The deadline passed; the operation may still be going on.
  cancelled,            ///< The waiter left; the operation may still be going on.
  unavailable,          ///< Something outside (helper, kernel) does not answer now.
  unreachable,          ///< The cluster does not answer now.
  pool_full,            ///< The cluster holds writes to the pool back: the pool is at its quota, or its OSDs are full.
  in_use,               ///< Someone else uses the image or the device.
  unproven,             ///< It is not proven that the image is still ours.
  lost,                 ///< It is proven that the image is not ours any more, or not the same image.
  fenced,               ///< The cluster has blocklisted this client.
  node_fenced,          ///< The cluster has blocklisted every client of this node's address.
  state_write,          ///< A file of ours could not be written; nothing was done because of it.
  state_corrupt,        ///< A file of ours has the wrong sum, or is not what we write.
  state_newer,    ///< A newer version wrote a file of ours. Its volume is not served, and the file is never rewritten.
  unsafe_config,  ///< The effective Ceph configuration would acknowledge writes that are not stored.
  not_empty,      ///< A format was asked for, but the emptiness of the image is not proven.
  io,             ///< The kernel or the image reported an I/O error.
  internal,       ///< A defect of ours.
};

/// Last enumerator, for tests that walk the tables.
inline constexpr errc errc_last = errc::internal;

/// Returns the name that the log and `status` print: the enumerator's own.
std::string_view name(errc code);

/// A code for programs and a sentence for people: cause, object, way out. Never a secret.
struct Error {
  errc code = errc::internal;
  std::string text;
};

[[noreturn]] void throw_exception_from_error(const Error& error, const boost::source_location& where);

template <class T = void>
using result = boost::system::result<T, Error>;

/// Puts the action in front of the sentence: "opening image a/b: no such image".
Error with_context(std::string_view doing, Error error);

/// gRPC status codes by number, so that core needs no gRPC.
/// Final codes end kubelet's interest in the volume: it forgets it (docs/sources.md#kubelet-final-errors). Only
/// ABORTED, UNAVAILABLE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED and CANCELLED say "may still be running"; a final code
/// is given only after a full rollback.
int grpc_code(errc code);
bool final_for_caller(errc code);

}  // namespace corbd
