#include "open_image.hpp"

#include "support/catch.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace corbd::test;
using rbd::Details;
using rbd::why_refused;

namespace {

constexpr std::uint64_t kNewer = 1 << 13;
const std::string kImage = "pool/image";

}  // namespace

TEST_CASE("an image with an unsafe setting or an unknown feature is refused to writers, and not to readers") {
  Details details;
  CHECK_FALSE(why_refused(details, {.writes = true}, kImage));
  const int which = GENERATE(0, 1, 2);
  if (which == 0) details.unsafe = Error{errc::unsafe_config, "image pool/image has rbd_cache=true"};
  if (which == 1) details.features.bits = kNewer;
  if (which == 2) details.features.operations = kNewer;
  CHECK(why_refused(details, {.writes = true}, kImage));
  CHECK_FALSE(why_refused(details, {.writes = false}, kImage));
}

TEST_CASE(
    "an image that mirrors another one, or whose newest writes are in another client's cache, is refused to all") {
  Details details;
  const bool writes = GENERATE(true, false);
  SECTION("a mirror") { details.secondary = true; }
  SECTION("a dirty cache") {
    details.features.bits = image::kDirtyCache;
    CHECK_FALSE(why_refused(details, {.writes = writes, .despite_dirty_cache = true}, kImage));
  }
  REQUIRE(why_refused(details, {.writes = writes}, kImage));
  CHECK_THAT(why_refused(details, {.writes = writes}, kImage)->text, ContainsSubstring("image pool/image"));
}

TEST_CASE("an update that librbd announces after the image's end does nothing, even if the event loop has gone too") {
  auto loop = std::make_unique<Loop>();
  int raised = 0;
  rbd::UpdateSignal signal(loop->control(), [&] { ++raised; });
  rbd::UpdateSignal::raise(&signal);
  CHECK(eventually(loop->io, [&] { return raised == 1; }));
  signal.end();
  rbd::UpdateSignal::raise(&signal);
  loop->poll();
  loop.reset();
  rbd::UpdateSignal::raise(&signal);
  CHECK(raised == 1);
}
