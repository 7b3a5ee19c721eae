#include "failure.hpp"

#include <cerrno>

#include "support/catch.hpp"

using namespace corbd;

namespace {

Error refused(int failed) {
  device::MapArgs args;
  args.monitors = {"10.0.0.1:6789"};
  args.user = "node";
  args.name = {"pool", "", "image-1"};
  args.options = "lock_on_read";
  return krbd::not_mapped(args, failed);
}

}  // namespace

TEST_CASE("the refusal of a map option names the options and the kernel's log") {
  CHECK(refused(EINVAL).code == errc::failed_precondition);
  CHECK_THAT(refused(EINVAL).text, ContainsSubstring("lock_on_read"));
  CHECK_THAT(refused(EINVAL).text, ContainsSubstring("dmesg"));
}

TEST_CASE("a map that ends without a reason names the kernel's log and what the reason may be") {
  for (const int failed : {EIO, ETIMEDOUT}) {
    INFO(failed);
    CHECK(refused(failed).code == errc::unavailable);
    CHECK_THAT(refused(failed).text, ContainsSubstring("dmesg"));
    CHECK_THAT(refused(failed).text, ContainsSubstring("feature that this kernel does not know"));
  }
}
