// The calls that a bench made: how long each kind took, and what failed.
#pragma once

#include <boost/json/object.hpp>
#include <map>
#include <string>
#include <vector>

namespace corbd::bench {

/// Of one kind of call. Those that failed are in no percentile: a driver that fails fast is not a fast driver.
struct Calls {
  std::vector<double> ms;             ///< of those that succeeded
  std::map<std::string, int> errors;  ///< by text
  int repeats = 0;                    ///< of failed ones; they are not measured

  void succeeded(double took) { ms.push_back(took); }
  void failed(const std::string& text) { ++errors[text]; }
  int failures() const;
  /// {"calls", "failed", "repeats", "p50_ms", "p90_ms", "p99_ms", "longest_ms", "errors"}; no times if all failed.
  boost::json::object json() const;
  /// One line of the table; `title` above all of them.
  std::string row(const std::string& name) const;
  static std::string title();
};

}  // namespace corbd::bench
