#include "corbd/core/result.hpp"

#include <array>
#include <stdexcept>

namespace corbd {
namespace {

struct Row {
  errc code;
  std::string_view name;
  int grpc;
};

// Values of grpc::StatusCode.
constexpr int kOk = 0, kCancelled = 1, kInvalid = 3, kDeadline = 4, kNotFound = 5, kExists = 6, kDenied = 7,
              kExhausted = 8, kPrecondition = 9, kAborted = 10, kRange = 11, kUnimplemented = 12, kInternal = 13,
              kUnavailable = 14, kUnauthenticated = 16;

constexpr std::array kRows{
    Row{errc::ok, "ok", kOk},
    Row{errc::invalid_argument, "invalid_argument", kInvalid},
    Row{errc::not_found, "not_found", kNotFound},
    Row{errc::already_exists, "already_exists", kExists},
    Row{errc::failed_precondition, "failed_precondition", kPrecondition},
    Row{errc::permission_denied, "permission_denied", kDenied},
    Row{errc::unauthenticated, "unauthenticated", kUnauthenticated},
    Row{errc::unimplemented, "unimplemented", kUnimplemented},
    Row{errc::out_of_range, "out_of_range", kRange},
    Row{errc::busy, "busy", kAborted},
    Row{errc::exhausted, "exhausted", kExhausted},
    Row{errc::timed_out, "timed_out", kDeadline},
    Row{errc::cancelled, "cancelled", kCancelled},
    Row{errc::unavailable, "unavailable", kUnavailable},
    Row{errc::unreachable, "unreachable", kUnavailable},
    Row{errc::pool_full, "pool_full", kUnavailable},
    Row{errc::in_use, "in_use", kUnavailable},
    Row{errc::unproven, "unproven", kUnavailable},
    Row{errc::lost, "lost", kUnavailable},
    Row{errc::fenced, "fenced", kUnavailable},
    Row{errc::node_fenced, "node_fenced", kUnavailable},
    Row{errc::state_write, "state_write", kUnavailable},
    Row{errc::state_corrupt, "state_corrupt", kUnavailable},
    Row{errc::state_newer, "state_newer", kUnavailable},
    Row{errc::unsafe_config, "unsafe_config", kPrecondition},
    Row{errc::not_empty, "not_empty", kPrecondition},
    Row{errc::io, "io", kUnavailable},
    Row{errc::internal, "internal", kInternal},
};
static_assert(kRows.size() == static_cast<std::size_t>(errc_last) + 1);

constexpr bool in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<std::size_t>(kRows[i].code) != i) return false;
  return true;
}
static_assert(in_order());

const Row& row(errc code) { return kRows.at(static_cast<std::size_t>(code)); }

}  // namespace

std::string_view name(errc code) { return row(code).name; }
int grpc_code(errc code) { return row(code).grpc; }

bool final_for_caller(errc code) {
  switch (grpc_code(code)) {
    case kAborted:
    case kUnavailable:
    case kExhausted:
    case kDeadline:
    case kCancelled:
      return false;
    default:
      return true;
  }
}

Error with_context(std::string_view doing, Error error) {
  error.text = std::string(doing) + ": " + error.text;
  return error;
}

void throw_exception_from_error(const Error& error, const boost::source_location&) {
  throw std::runtime_error(std::string(name(error.code)) + ": " + error.text);
}

}  // namespace corbd
