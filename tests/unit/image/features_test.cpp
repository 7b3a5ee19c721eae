#include "corbd/image/features.hpp"

#include <algorithm>

#include "support/catch.hpp"

using namespace corbd;
using image::Features;

TEST_CASE("an image whose features are all known and harmless is served") {
  CHECK_FALSE(image::refuse({0, 0}, true, "image p/i"));
  CHECK_FALSE(image::refuse({0x3ff, 0xf}, true, "image p/i"));
}

TEST_CASE("each bit of a feature has one row and one name") {
  for (const auto& feature : image::kFeatures) {
    CHECK(std::ranges::count(image::kFeatures, feature.bit, &image::Feature::bit) == 1);
    CHECK(image::names_of(feature.bit) == feature.name);
    CHECK(feature.refused.empty() == (feature.code == errc::ok));
  }
  CHECK(image::names_of(5 | 1 << 13) == "layering, exclusive-lock, bit 13");
}

TEST_CASE("an image with a dirty persistent cache is refused to writers and readers, and the way out is named",
          "[failure:190]") {
  const auto refused = image::refuse({image::kDirtyCache | 5, 0}, GENERATE(true, false), "image p/i");
  REQUIRE(refused);
  CHECK(refused->code == errc::unsafe_config);
  CHECK_THAT(refused->text, ContainsSubstring("image p/i has the feature dirty-cache"));
  CHECK_THAT(refused->text, ContainsSubstring("rbd persistent-cache flush"));
}

TEST_CASE("a bit that nobody knows refuses writers, with its number, and no reader") {
  const auto [features, number] = GENERATE(table<Features, std::string>(
      {{Features{1ull << 12, 0}, "feature bit 12"}, {Features{256, 1ull << 40}, "operation feature bit 40"}}));
  const auto refused = image::refuse(features, true, "image p/i");
  REQUIRE(refused);
  CHECK(refused->code == errc::failed_precondition);
  CHECK_THAT(refused->text, ContainsSubstring(number));
  CHECK_FALSE(image::refuse(features, false, "image p/i"));
}
