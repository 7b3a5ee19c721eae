// A link's statistics, counted by operation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace corbd::device {

/// `discard`: TRIM and WRITE_ZEROES. Both free space, and neither transfers the bytes that it names.
enum class RequestKind { read, write, flush, discard };
inline constexpr std::array<std::string_view, 4> kRequestKinds{"read", "write", "flush", "discard"};
inline std::string_view name(RequestKind operation) { return kRequestKinds.at(static_cast<std::size_t>(operation)); }

/// Upper bounds in seconds of the latency's buckets. They are few, because each is a time series for every volume and
/// operation.
inline constexpr std::array kLatencyBounds{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0};

/// Requests of one operation that the image ended. A request that the kernel repeats on another link counts there.
struct RequestFigures {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;   ///< that the requests named; 0 for flush
  std::uint64_t errors = 0;  ///< answered with an error
  std::uint64_t micros = 0;  ///< sum of their latencies
  std::array<std::uint64_t, kLatencyBounds.size() + 1>
      latency{};  ///< requests by latency, not cumulative; the last bucket has those above all bounds
  bool operator==(const RequestFigures&) const = default;
};

struct Figures {
  std::array<RequestFigures, kRequestKinds.size()> by{};  ///< indexed in the order of RequestKind
  std::uint64_t slow = 0;                                 ///< requests of any operation that took --slow-request
  std::uint64_t still_micros = 0;                         ///< time in which nothing was read, for lack of memory budget
  RequestFigures& of(RequestKind operation) { return by.at(static_cast<std::size_t>(operation)); }
  const RequestFigures& of(RequestKind operation) const { return by.at(static_cast<std::size_t>(operation)); }
  bool operator==(const Figures&) const = default;
};

inline Figures& operator+=(Figures& to, const Figures& more) {
  for (std::size_t i = 0; i < to.by.size(); ++i) {
    auto& one = to.by.at(i);
    const auto& other = more.by.at(i);
    one.requests += other.requests;
    one.bytes += other.bytes;
    one.errors += other.errors;
    one.micros += other.micros;
    for (std::size_t k = 0; k < one.latency.size(); ++k) one.latency.at(k) += other.latency.at(k);
  }
  to.slow += more.slow;
  to.still_micros += more.still_micros;
  return to;
}

}  // namespace corbd::device
