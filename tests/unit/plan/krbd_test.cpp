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
  const auto kinds = run(model, Wish(wish));
  REQUIRE(kinds);
  CHECK(*kinds == std::vector{Kind::look,         Kind::write_record, Kind::look,         Kind::write_stash,
                              Kind::fence,        Kind::open_image,   Kind::look,         Kind::map_krbd,
                              Kind::look,         Kind::write_record, Kind::look,         Kind::look,
                              Kind::look,         Kind::write_record, Kind::mark,         Kind::look,
                              Kind::write_record, Kind::mkfs,         Kind::look,         Kind::mount,
                              Kind::look,         Kind::unmark,       Kind::write_record, Kind::close_image});
}

TEST_CASE("the kernel's client is chosen where it is wanted and knows every feature of the image") {
  using device::Kind;
  CHECK(*choose_kind(Mounter::nbd, 0, Error{errc::failed_precondition, "no module"}) == Kind::nbd);
  CHECK(*choose_kind(Mounter::krbd, 5, std::uint64_t{0x1bf}) == Kind::krbd);
  CHECK(*choose_kind(Mounter::krbd_if_able, 69, std::uint64_t{0x1bf}) == Kind::nbd);
  const auto refused = choose_kind(Mounter::krbd, 69 | 1ull << 40, std::uint64_t{0x1bf});
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, ContainsSubstring("journaling, bit 40"));
}
