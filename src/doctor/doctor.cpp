#include "corbd/doctor/doctor.hpp"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <iomanip>
#include <iostream>

#include "corbd/rpc/json.hpp"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

void print_findings(const std::vector<Finding>& findings) {
  std::size_t width = 0;
  for (const auto& finding : findings) width = std::max(width, finding.check.size());
  const std::string indent(width + 8, ' ');
  for (const auto& finding : findings) {
    std::cout << std::left << std::setw(6) << word(finding.verdict) << std::setw(static_cast<int>(width + 2))
              << finding.check << finding.said << "\n";
    if (!finding.remedy.empty()) std::cout << indent << "-> " << finding.remedy << "\n";
  }
}

}  // namespace

int diagnose(const Options& options, const v1::Program& own) {
  const auto findings = judge(gather(options, own));
  if (options.output == "json")
    std::cout << boost::json::serialize(rpc::document({{"findings", report(findings)}})) << "\n";
  else
    print_findings(findings);
  std::cout.flush();
  if (options.bundle.empty()) return exit_code(findings);
  if (const auto packed = write_bundle(options, own.version(), findings); !packed) {
    std::cerr << "corbd doctor: " << packed.error().text << "\n";
    return static_cast<int>(Grade::failure);
  }
  std::cerr << "packed into " << options.bundle << "\n";
  return exit_code(findings);
}

}  // namespace corbd::doctor
