// What a check found.
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

/// 0 ok, 1 warnings, 2 failures.
int exit_code(const std::vector<Finding>& findings);
/// "OK", "WARN", "FAIL".
const char* word(Grade verdict);
/// In JSON; the words of `corbd status`.
const char* json_word(Grade verdict);
boost::json::array report(const std::vector<Finding>& findings);

}  // namespace corbd::doctor
