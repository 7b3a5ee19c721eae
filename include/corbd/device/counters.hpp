// Counts over all devices together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace corbd::device {

enum class Count { refused, image_errors, links_held, links_broken, links_dead, budget_waits };

/// Name and help text of a count in the metrics.
struct CountMetric {
  Count count;
  const char* name;
  const char* help;
};

/// The rows are in the order of Count.
inline constexpr std::array kCountMetrics{
    CountMetric{Count::refused, "corbd_nbd_refused_total", "Requests answered with an error without asking the image."},
    CountMetric{Count::image_errors, "corbd_nbd_image_errors_total", "Requests answered with the image's error."},
    CountMetric{Count::links_held, "corbd_nbd_links_held_total", "Links shut because the image's connection failed."},
    CountMetric{Count::links_broken, "corbd_nbd_links_broken_total",
                "Links shut because the peer did not speak the protocol."},
    CountMetric{Count::links_dead, "corbd_nbd_links_dead_total", "Dead links that the kernel reported."},
    CountMetric{Count::budget_waits, "corbd_nbd_budget_waits_total",
                "Times the agent stopped reading a device because too much was in flight."},
};
static_assert(kCountMetrics.back().count == Count{kCountMetrics.size() - 1}, "a row for each Count, in its order");

/// One number for each Count, and one for requests by NBD command number.
template <class Number>
struct Counts {
  std::array<Number, 7> requests{};  ///< requests that the image got, by NBD command number
  std::array<Number, kCountMetrics.size()> by{};
  Number& of(Count count) { return by.at(static_cast<std::size_t>(count)); }
  const Number& of(Count count) const { return by.at(static_cast<std::size_t>(count)); }
};

/// Totals since the agent's start.
struct Counters : Counts<std::uint64_t> {
  // Present values, in bytes.
  std::uint64_t budget = 0;     ///< limit of memory for requests in flight, over all devices
  std::uint64_t reserved = 0;   ///< memory beyond the budget: one largest request for each served device
  std::uint64_t in_flight = 0;  ///< memory that they take now
  std::uint64_t buffers = 0;    ///< memory allocated for them, including buffers that are kept for the next requests
  Counters& operator+=(const Counters& other) {
    for (std::size_t i = 0; i < requests.size(); ++i) requests.at(i) += other.requests.at(i);
    for (std::size_t i = 0; i < by.size(); ++i) by.at(i) += other.by.at(i);
    budget += other.budget;
    reserved += other.reserved;
    in_flight += other.in_flight;
    buffers += other.buffers;
    return *this;
  }
};

}  // namespace corbd::device
