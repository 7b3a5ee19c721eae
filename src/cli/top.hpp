// The view of `corbd top`: turns two answers of an agent into rates. Pure.
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
  int severity = 0;  ///< severity of the state: rows that wait or fail come first
  bool by_kernel = false;
  double reads = 0, writes = 0, others = 0;  ///< requests per second
  double read_bytes = 0, write_bytes = 0;    ///< bytes per second
  double errors = 0;                         ///< per second
  std::optional<double> p99;                 ///< seconds, over all operations; none: nothing was answered
  bool beyond = false;                       ///< the p99 is above the last bound of the agent's buckets
  std::uint64_t in_flight = 0;
  std::vector<v1::IoLimits> limits;   ///< limits of its pods
  std::optional<std::uint64_t> used;  ///< bytes of a raw block volume's image
  double oldest = 0;                  ///< seconds
  double budget_wait = 0;  ///< share of the time in which the agent did not read the device, for lack of memory
  double iops() const { return reads + writes + others; }
  double bytes() const { return read_bytes + write_bytes; }
};

struct TopColumn {
  std::string_view name;  ///< name for --sort
  char key;               ///< key on the keyboard
};
std::span<const TopColumn> top_columns();

/// `before`: an earlier answer of the same agent's run; otherwise, and for a new volume, rates are 0.
std::vector<TopRow> top_rows(const v1::ListActivityResponse& before, const v1::ListActivityResponse& now);
/// Sorts the largest first, and names alphabetically. Equal rows are ordered by name.
void sort_top(std::vector<TopRow>& rows, std::string_view column);
/// Leaves out rows beyond `at_most` and counts them in a last line; 0: no limit.
std::string top_table(const std::vector<TopRow>& rows, std::size_t at_most = 0);
boost::json::object top_json(const std::vector<TopRow>& rows);

}  // namespace corbd::cli
