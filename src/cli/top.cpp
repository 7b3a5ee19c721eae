#include "top.hpp"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <cmath>
#include <cstdio>
#include <map>

#include "corbd/core/display.hpp"
#include "view.hpp"

namespace corbd::cli {
namespace {

constexpr double kQuantile = 0.99;

std::string figure(double value, const char* form) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), form, value);
  return text.data();
}

std::string rate(double per_second) { return figure(per_second, per_second < 10 && per_second > 0 ? "%.1f" : "%.0f"); }
std::string megabytes(double bytes) { return figure(bytes / 1e6, "%.1f"); }
std::string millis(double seconds) { return figure(seconds * 1e3, seconds < 0.1 ? "%.1f" : "%.0f"); }

std::string name_of(const TopRow& row) { return row.pvc.empty() ? row.id : row.pvc_namespace + "/" + row.pvc; }

/// Growth of a counter. One that is smaller than before has restarted.
std::uint64_t grown(std::uint64_t before, std::uint64_t now) { return now >= before ? now - before : now; }

using Counts = std::vector<std::uint64_t>;

/// Interpolates within a bucket, as if its requests were spread evenly, like Prometheus' histogram_quantile.
void put_p99(TopRow& row, const Counts& counts, const google::protobuf::RepeatedField<double>& bounds) {
  double all = 0;
  for (const auto count : counts) all += static_cast<double>(count);
  if (all == 0) return;
  double below = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto here = static_cast<double>(counts.at(i));
    if (below + here < all * kQuantile || here == 0) {
      below += here;
      continue;
    }
    const double from = i == 0 ? 0 : bounds.Get(static_cast<int>(i) - 1);
    row.beyond = static_cast<int>(i) >= bounds.size();
    row.p99 = row.beyond ? from : from + (bounds.Get(static_cast<int>(i)) - from) * (all * kQuantile - below) / here;
    return;
  }
}

void put_rates(TopRow& row, const v1::Activity* before, const v1::Activity& now, double seconds,
               const google::protobuf::RepeatedField<double>& bounds) {
  Counts latency(static_cast<std::size_t>(bounds.size()) + 1);
  for (const auto& of : now.operations()) {
    const v1::OperationFigures* was = nullptr;
    if (before != nullptr)
      for (const auto& other : before->operations())
        if (other.operation() == of.operation()) was = &other;
    if (was == nullptr) continue;
    const auto per_second = [&](std::uint64_t from, std::uint64_t to) {
      return static_cast<double>(grown(from, to)) / seconds;
    };
    const double requests = per_second(was->requests(), of.requests());
    const double bytes = per_second(was->bytes(), of.bytes());
    row.errors += per_second(was->errors(), of.errors());
    if (of.operation() == "read") {
      row.reads += requests;
      row.read_bytes += bytes;
    } else if (of.operation() == "write") {
      row.writes += requests;
      row.write_bytes += bytes;
    } else {
      row.others += requests;
    }
    for (int i = 0; i < of.latency_size() && i < was->latency_size() && i <= bounds.size(); ++i)
      latency.at(static_cast<std::size_t>(i)) += grown(was->latency(i), of.latency(i));
  }
  put_p99(row, latency, bounds);
}

constexpr std::array<TopColumn, 6> kColumns{
    {{"iops", 'i'}, {"bytes", 'b'}, {"latency", 'l'}, {"inflight", 'f'}, {"state", 's'}, {"name", 'n'}}};

double sort_value(const TopRow& row, std::string_view column) {
  if (column == "bytes") return row.bytes();
  if (column == "latency") return row.p99.value_or(-1);
  if (column == "inflight") return static_cast<double>(row.in_flight);
  if (column == "state") return row.severity;
  return column == "name" ? 0 : row.iops();
}

/// Used only to order the rows; the agent judges (ops::judge).
int severity(v1::Health health) {
  switch (health) {
    case v1::HEALTH_STAGING:
    case v1::HEALTH_STAGED:
    case v1::HEALTH_UNSTAGING:
      return 0;
    case v1::HEALTH_UNPROVEN:
    case v1::HEALTH_LOST:
    case v1::HEALTH_FAILED:
      return 2;
    default:
      return 1;
  }
}

/// Shows "r=100/s w=1.5MB/s" for each pod.
std::string limits_of(const TopRow& row) {
  std::string text;
  const auto add = [&](const char* what, std::uint64_t limit, bool bytes) {
    if (limit == 0) return;
    const double number = static_cast<double>(limit);
    text += (text.empty() ? "" : " ") + std::string(what) + "=" +
            (bytes ? megabytes(number) + "MB/s" : figure(number, "%.0f") + "/s");
  };
  for (const auto& limits : row.limits) {
    add("r", limits.read_iops(), false);
    add("w", limits.write_iops(), false);
    add("r", limits.read_bytes_per_s(), true);
    add("w", limits.write_bytes_per_s(), true);
  }
  return text.empty() ? "-" : text;
}

boost::json::array limits_json(const TopRow& row) {
  boost::json::array all;
  for (const auto& limits : row.limits)
    all.push_back(boost::json::object{{"pod", limits.pod()},
                                      {"read_iops", limits.read_iops()},
                                      {"write_iops", limits.write_iops()},
                                      {"read_bytes_per_s", limits.read_bytes_per_s()},
                                      {"write_bytes_per_s", limits.write_bytes_per_s()}});
  return all;
}

}  // namespace

std::span<const TopColumn> top_columns() { return kColumns; }

std::vector<TopRow> top_rows(const v1::ListActivityResponse& before, const v1::ListActivityResponse& now) {
  std::map<std::string, const v1::Activity*> earlier;
  const double seconds = static_cast<double>(now.at_us() - before.at_us()) / 1e6;
  if (before.started_at_ms() == now.started_at_ms() && seconds > 0)
    for (const auto& volume : before.volumes()) earlier[volume.id()] = &volume;
  std::vector<TopRow> rows;
  for (const auto& volume : now.volumes()) {
    TopRow& row = rows.emplace_back();
    row.id = volume.id();
    row.pvc = volume.pvc();
    row.pvc_namespace = volume.pvc_namespace();
    row.state = word(volume.health());
    row.severity = severity(volume.health());
    row.by_kernel = volume.by_kernel();
    row.in_flight = volume.in_flight();
    row.limits.assign(volume.io_limits().begin(), volume.io_limits().end());
    row.oldest = static_cast<double>(volume.oldest_request_ms()) / 1e3;
    if (volume.has_used_bytes()) row.used = volume.used_bytes();
    const auto was = earlier.find(volume.id());
    put_rates(row, was == earlier.end() ? nullptr : was->second, volume, seconds, now.latency_bounds_s());
    if (was != earlier.end())
      row.budget_wait =
          static_cast<double>(grown(was->second->budget_wait_us(), volume.budget_wait_us())) / 1e6 / seconds;
  }
  return rows;
}

void sort_top(std::vector<TopRow>& rows, std::string_view column) {
  std::ranges::sort(rows, [&](const TopRow& one, const TopRow& other) {
    const double mine = sort_value(one, column), its = sort_value(other, column);
    return mine != its ? mine > its : std::pair(name_of(one), one.id) < std::pair(name_of(other), other.id);
  });
}

std::string top_table(const std::vector<TopRow>& rows, std::size_t at_most) {
  std::vector<std::vector<std::string>> cells{{"VOLUME", "STATE", "READ/S", "WRITE/S", "OTHER/S", "READ-MB/S",
                                               "WRITE-MB/S", "P99-MS", "IN-FLIGHT", "OLDEST-S", "ERRORS/S", "USED-MB",
                                               "LIMITS"}};
  const std::size_t shown = at_most == 0 ? rows.size() : std::min(at_most, rows.size());
  for (const auto& row : std::span(rows).first(shown)) {
    auto& line = cells.emplace_back(std::vector<std::string>{cell(name_of(row)), row.state});
    if (row.by_kernel) {
      // The kernel's own counters are in /sys/block/rbd*/stat.
      line.insert(line.end(), 9, "kernel");
      line.insert(line.end(), {"-", limits_of(row)});
      continue;
    }
    const std::string p99 = row.p99 ? (row.beyond ? ">" : "") + millis(*row.p99) : "-";
    line.insert(line.end(), {rate(row.reads), rate(row.writes), rate(row.others), megabytes(row.read_bytes),
                             megabytes(row.write_bytes), p99, std::to_string(row.in_flight),
                             row.oldest > 0 ? figure(row.oldest, "%.1f") : "-", rate(row.errors),
                             row.used ? megabytes(static_cast<double>(*row.used)) : "-", limits_of(row)});
  }
  std::string text = table(cells);
  if (shown < rows.size()) text += "and " + std::to_string(rows.size() - shown) + " more\n";
  return text;
}

boost::json::object top_json(const std::vector<TopRow>& rows) {
  boost::json::array volumes;
  for (const auto& row : rows) {
    boost::json::object one{{"id", row.id},
                            {"pvc", row.pvc},
                            {"pvc_namespace", row.pvc_namespace},
                            {"health", row.state},
                            {"by_kernel", row.by_kernel},
                            {"reads_per_s", row.reads},
                            {"writes_per_s", row.writes},
                            {"others_per_s", row.others},
                            {"read_bytes_per_s", row.read_bytes},
                            {"write_bytes_per_s", row.write_bytes},
                            {"errors_per_s", row.errors},
                            {"p99_s", nullptr},
                            {"p99_is_at_least", row.beyond},
                            {"in_flight", row.in_flight},
                            {"io_limits", limits_json(row)},
                            {"oldest_request_s", row.oldest},
                            {"used_bytes", nullptr},
                            {"budget_wait_share", row.budget_wait}};
    if (row.p99) one["p99_s"] = *row.p99;
    if (row.used) one["used_bytes"] = *row.used;
    // A 0 would look like a measurement.
    if (row.by_kernel)
      for (const char* figure : {"reads_per_s", "writes_per_s", "others_per_s", "read_bytes_per_s", "write_bytes_per_s",
                                 "errors_per_s", "p99_s", "in_flight", "oldest_request_s", "budget_wait_share"})
        one[figure] = nullptr;
    volumes.push_back(std::move(one));
  }
  return {{"volumes", std::move(volumes)}};
}

}  // namespace corbd::cli
