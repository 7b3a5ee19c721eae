// Finds the rows of the table of refused combinations that volumes staged here would meet. Pure.
#include <algorithm>

#include "inputs.hpp"

namespace corbd::doctor {
namespace {

using plan::NotServed;

/// Whether the row matters: a volume without encryption has no key to rotate.
bool concerns(const NotServed& row, const plan::Combination& of) {
  return row.moment != NotServed::Moment::stage && row.is(of) &&
         (row.moment != NotServed::Moment::rotation || of.encryption != plan::Combination::Encryption::none);
}

}  // namespace

Finding judge_combinations(const Inputs& inputs) {
  const char* check = "combinations";
  std::vector<std::string> refused;
  for (const auto& [volume, of] : inputs.records.combinations) {
    std::vector<std::string> rows;
    for (const auto* row : plan::all_not_served())
      if (concerns(*row, of))
        rows.push_back(std::string(plan::name(row->moment)) + " (" + std::string(row->combination) + ")");
    if (!rows.empty()) refused.push_back("volume " + volume + ": " + listed(rows));
  }
  if (inputs.records.combinations.empty()) return ok(check, "no volume is staged here");
  if (refused.empty()) return ok(check, "the volumes that are staged here meet no row of the table");
  return ok(check, "refused on purpose (docs/serving.md): " + listed(refused, "; "));
}

}  // namespace corbd::doctor
