// Encrypted volumes.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

TEST_CASE(
    "a fresh stage of an encrypted volume proves its image empty before the header, and makes the filesystem on the "
    "mapping") {
  Model model = fresh();
  model.kms_id = "default";
  model.filesystem_bytes = mapping().size;
  const auto kinds = run(model, Wish(staged_wish()));
  REQUIRE(kinds);
  CHECK(*kinds == std::vector{Kind::look,          Kind::write_record,   Kind::look,        Kind::write_stash,
                              Kind::fence,         Kind::open_image,     Kind::look,        Kind::lock,
                              Kind::start_session, Kind::kernel_connect, Kind::write_stash, Kind::write_record,
                              Kind::tune,          Kind::look,           Kind::look,        Kind::look,
                              Kind::look,          Kind::write_record,   Kind::mark,        Kind::luks_format,
                              Kind::look,          Kind::luks_note,      Kind::luks_open,   Kind::look,
                              Kind::mkfs,          Kind::look,           Kind::mount,       Kind::look,
                              Kind::unmark,        Kind::write_record});
  CHECK(model.record->kms_id == "default");
  CHECK(model.stash->encrypted);
}
