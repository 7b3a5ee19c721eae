#include "corbd/doctor/finding.hpp"

#include <algorithm>
#include <boost/json/object.hpp>

namespace corbd::doctor {

Finding ok(std::string check, std::string said) { return {std::move(check), Grade::ok, std::move(said), {}}; }
Finding warning(std::string check, std::string said, std::string remedy) {
  return {std::move(check), Grade::warning, std::move(said), std::move(remedy)};
}
Finding failure(std::string check, std::string said, std::string remedy) {
  return {std::move(check), Grade::failure, std::move(said), std::move(remedy)};
}

int exit_code(const std::vector<Finding>& findings) {
  auto worst = Grade::ok;
  for (const auto& finding : findings) worst = std::max(worst, finding.verdict);
  return static_cast<int>(worst);
}

const char* word(Grade verdict) {
  constexpr const char* words[] = {"OK", "WARN", "FAIL"};
  return words[static_cast<int>(verdict)];
}

const char* json_word(Grade verdict) {
  constexpr const char* words[] = {"ok", "warning", "critical"};
  return words[static_cast<int>(verdict)];
}

boost::json::array report(const std::vector<Finding>& findings) {
  boost::json::array all;
  for (const auto& finding : findings)
    all.push_back(boost::json::object{{"check", finding.check},
                                      {"verdict", json_word(finding.verdict)},
                                      {"said", finding.said},
                                      {"remedy", finding.remedy}});
  return all;
}

}  // namespace corbd::doctor
