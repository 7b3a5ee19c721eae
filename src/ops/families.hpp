// Families of metrics, as Prometheus' own library has them.
#pragma once

#include <prometheus/metric_family.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "corbd/ops/metrics.hpp"
#include "corbd/rpc/utf8.hpp"

namespace corbd::ops {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

inline double seconds(duration of) { return std::chrono::duration<double>(of).count(); }

/// Collects one family of metrics after another, with their samples.
class Families {
 public:
  void family(const char* name, MetricType type, const char* help) { all_.push_back({name, help, type, {}}); }
  void sample(Labels labels, double value) {
    ClientMetric& made = add(std::move(labels));
    (all_.back().type == MetricType::Counter ? made.counter.value : made.gauge.value) = value;
  }
  /// `counts`: not cumulative, one more than the bounds.
  template <class Bounds, class Counts>
  void histogram(Labels labels, const Bounds& bounds, const Counts& counts, double sum) {
    auto& into = add(std::move(labels)).histogram;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      into.sample_count += counts.at(i);
      const double bound = i < bounds.size() ? bounds.at(i) : std::numeric_limits<double>::infinity();
      into.bucket.push_back({into.sample_count, bound});
    }
    into.sample_sum = sum;
  }
  void single(const char* name, MetricType type, const char* help, double value) {
    family(name, type, help);
    sample({}, value);
  }
  void counter(const char* name, const char* help, std::uint64_t value) {
    single(name, MetricType::Counter, help, static_cast<double>(value));
  }
  void gauge(const char* name, const char* help, double value) { single(name, MetricType::Gauge, help, value); }
  std::vector<MetricFamily> take() { return std::move(all_); }

 private:
  ClientMetric& add(Labels labels) {
    auto& made = all_.back().metric.emplace_back();
    made.label = std::move(labels);
    // Prometheus refuses the whole page if one label is not UTF-8.
    for (auto& label : made.label) label.value = rpc::valid_utf8(label.value);
    return made;
  }
  std::vector<MetricFamily> all_;
};

/// Adds what each volume has.
void volumes(Families& into, const Snapshot& snapshot);
/// Adds what each volume's requests are, as far as --volume-metrics wants it.
void volume_io(Families& into, const Snapshot& snapshot);

}  // namespace corbd::ops
