#include "doctor.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <iomanip>
#include <iostream>

#include "corbd/rpc/json.hpp"
#include "moving.hpp"

namespace corbd::cli {
namespace {

constexpr const char* word(Grade verdict) {
  switch (verdict) {
    case Grade::ok:
      return "OK";
    case Grade::warning:
      return "WARN";
    case Grade::failure:
      return "FAIL";
  }
  return "";
}

void print_findings(const std::vector<Finding>& findings) {
  std::size_t width = 0;
  for (const auto& finding : findings) width = std::max(width, finding.check.size());
  const std::string indent(width + 8, ' ');
  for (const auto& finding : findings) {
    std::cout << std::left << std::setw(6) << word(finding.verdict) << std::setw(static_cast<int>(width + 2))
              << finding.check << finding.said << "\n";
    if (!finding.way_out.empty()) std::cout << indent << "-> " << finding.way_out << "\n";
  }
}

}  // namespace

const char* json_word(Grade verdict) {
  switch (verdict) {
    case Grade::ok:
      return "ok";
    case Grade::warning:
      return "warning";
    case Grade::failure:
      return "critical";
  }
  return "";
}

boost::json::array report(const std::vector<Finding>& findings) {
  boost::json::array all;
  for (const auto& finding : findings)
    all.push_back(boost::json::object{{"check", finding.check},
                                      {"verdict", json_word(finding.verdict)},
                                      {"said", finding.said},
                                      {"way_out", finding.way_out}});
  return all;
}

int diagnose(const Doctor& options, const std::string& version, const Surroundings& around) {
  if (options.before != Doctor::Before::nothing) return foresee(options);
  const auto findings = judge(gather(options, around));
  if (options.output == "json")
    std::cout << boost::json::serialize(rpc::document({{"findings", report(findings)}})) << "\n";
  else
    print_findings(findings);
  std::cout.flush();
  if (options.bundle.empty()) return exit_code(findings);
  if (const auto packed = write_bundle(options, version, findings); !packed) {
    std::cerr << "corbd doctor: " << packed.error().text << "\n";
    return static_cast<int>(Grade::failure);
  }
  std::cerr << "packed into " << options.bundle << "\n";
  return exit_code(findings);
}

}  // namespace corbd::cli
