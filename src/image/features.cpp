#include "corbd/image/features.hpp"

#include <algorithm>
#include <span>

namespace corbd::image {
namespace {

constexpr std::uint64_t known(std::span<const Feature> table) {
  std::uint64_t bits = 0;
  for (const auto& feature : table) bits |= feature.bit;
  return bits;
}

std::string names(std::uint64_t bits, std::span<const Feature> table, const std::string& unknown) {
  std::string all;
  for (unsigned number = 0; number < 64; ++number) {
    const std::uint64_t bit = std::uint64_t{1} << number;
    if ((bits & bit) == 0) continue;
    const auto feature = std::ranges::find(table, bit, &Feature::bit);
    all += all.empty() ? "" : ", ";
    all += feature == table.end() ? unknown + std::to_string(number) : std::string(feature->name);
  }
  return all;
}

}  // namespace

std::string names_of(std::uint64_t features) { return names(features, kFeatures, "bit "); }

std::optional<Error> refuse(const Features& features, bool to_write, const std::string& which) {
  for (const auto& feature : kFeatures)
    if ((features.bits & feature.bit) != 0 && !feature.refused.empty())
      return Error{feature.code,
                   which + " has the feature " + std::string(feature.name) + ": " + std::string(feature.refused)};
  const std::uint64_t bits = features.bits & ~known(kFeatures), operations = features.operations & ~known(kOperations);
  if (!to_write || (bits == 0 && operations == 0)) return std::nullopt;
  const std::string unknown =
      bits != 0 ? names(bits, kFeatures, "feature bit ") : names(operations, kOperations, "operation feature bit ");
  return Error{errc::failed_precondition, which + " has " + unknown +
                                              ", which this version of corbd does not know, so it does not write the "
                                              "image: upgrade corbd, or use the volume read-only"};
}

}  // namespace corbd::image
