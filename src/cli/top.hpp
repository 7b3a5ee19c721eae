// What `corbd top` shows: two answers of an agent become rates. Pure.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/v1/admin.pb.h"

namespace corbd::cli {

struct TopRow {
  std::string id, pvc, pvc_namespace, state;
  int severity = 0;  ///< of the state: what waits or fails comes first
  bool by_kernel = false;
  double reads = 0, writes = 0, others = 0;  ///< requests per second
  double read_bytes = 0, write_bytes = 0;    ///< bytes per second
  double errors = 0;                         ///< per second
  std::optional<double> p99;                 ///< seconds, of all operations; none: nothing was answered
  bool beyond = false;                       ///< the p99 is above the last bound of the agent's buckets
  std::uint64_t in_flight = 0;
  std::vector<v1::IoLimits> limits;  ///< of its pods
  double oldest = 0;                 ///< seconds
  double budget_wait = 0;  ///< share of the time for which the agent did not read the device, for want of memory
  double iops() const { return reads + writes + others; }
  double bytes() const { return read_bytes + write_bytes; }
};

struct TopColumn {
  std::string_view name;  ///< as --sort takes it
  char key;               ///< on the keyboard
};
std::span<const TopColumn> top_columns();

/// `before`: an earlier answer. Of the same agent's run; otherwise, and for a volume that is new, rates are 0.
std::vector<TopRow> top_rows(const v1::ListActivityResponse& before, const v1::ListActivityResponse& now);
/// The largest first, names in their order. Equal rows are in the order of their names.
void sort_top(std::vector<TopRow>& rows, std::string_view column);
/// `rows` beyond that many are left out, and counted in a last line; 0: none.
std::string top_table(const std::vector<TopRow>& rows, std::size_t at_most = 0);
boost::json::object top_json(const std::vector<TopRow>& rows);

}  // namespace corbd::cli
