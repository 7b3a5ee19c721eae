// The kernel's own client.
#include "krbd.hpp"

#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

TEST_CASE(
    "a fresh stage with the kernel's client looks who has the image before and after the map, and leaves no image "
    "open") {
  Model model = fresh();
  auto wish = staged_wish();
  wish.mounter = Mounter::krbd;
  const auto steps = run(model, Wish(wish));
  REQUIRE(steps);
  CHECK(*steps ==
        sequence({opened(),
                  {step::MapKrbd{}, step::Look{Fact::ownership}, step::WriteRecord{}, step::Look{Fact::probe}},
                  proven_empty(),
                  {step::Look{Fact::ownership}, step::WriteRecord{}, step::Mkfs{}},
                  mounted(),
                  {step::CloseImage{}}}));
}

TEST_CASE("the kernel's client is chosen where it is wanted and knows every feature of the image") {
  CHECK(*choose_kind(Mounter::nbd, 0, Error{errc::failed_precondition, "no module"}) == device::Kind::nbd);
  CHECK(*choose_kind(Mounter::krbd, 5, std::uint64_t{0x1bf}) == device::Kind::krbd);
  CHECK(*choose_kind(Mounter::krbd_if_able, 69, std::uint64_t{0x1bf}) == device::Kind::nbd);
  const auto refused = choose_kind(Mounter::krbd, 69 | 1ull << 40, std::uint64_t{0x1bf});
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, ContainsSubstring("journaling, bit 40"));
}
