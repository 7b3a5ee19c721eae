#include "fsck_view.hpp"

#include "support/catch.hpp"

using namespace corbd;

TEST_CASE("while a check works, corbd fsck says on which device, for how long, and whether it repairs") {
  v1::FsckResponse check;
  check.set_state(v1::CHECK_WORKS);
  check.set_device("/dev/nbd0");
  check.set_lasts_ms(12'000);
  CHECK_THAT(cli::fsck_progress("1", check), ContainsSubstring("checking /dev/nbd0 for 12"));
  check.set_repair(true);
  CHECK_THAT(cli::fsck_progress("1", check), ContainsSubstring("repairing /dev/nbd0"));
  CHECK_THAT(cli::fsck_gave_up("1", check, 5), ContainsSubstring("goes on"));
}

TEST_CASE("a check that could not be made is told with its reason") {
  v1::FsckResponse check;
  check.set_state(v1::CHECK_DONE);
  check.mutable_failure()->set_text("there is no xfs_repair");
  CHECK_THAT(cli::fsck_result("1", check), ContainsSubstring("was not checked: there is no xfs_repair"));
}
