// Result of one check.
#pragma once

#include <boost/json/array.hpp>
#include <string>
#include <vector>

namespace corbd::doctor {

enum class Grade { ok, warning, failure };

struct Finding {
  std::string check;
  Grade verdict = Grade::ok;
  std::string said;    ///< one sentence
  std::string remedy;  ///< empty when there is nothing to do
};

Finding ok(std::string check, std::string said);
Finding warning(std::string check, std::string said, std::string remedy);
Finding failure(std::string check, std::string said, std::string remedy);

/// Returns 0 for ok, 1 for warnings, 2 for failures.
int exit_code(const std::vector<Finding>& findings);
/// Returns "OK", "WARN" or "FAIL".
const char* word(Grade verdict);
/// Returns the word for JSON, as in `corbd status`.
const char* json_word(Grade verdict);
boost::json::array report(const std::vector<Finding>& findings);

}  // namespace corbd::doctor
