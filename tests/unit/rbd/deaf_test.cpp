#include "deaf.hpp"

#include "support/catch.hpp"

using namespace corbd;
using rbd::Compared;

namespace {

using Names = std::vector<std::string>;
constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

/// Returns the last digit of each object's number.
std::string digits(const rbd::Layout& layout, image::Range range) {
  std::string all;
  for (const auto& name : data_objects(layout, range)) all += name.back();
  return all;
}

}  // namespace

TEST_CASE("a request is in the objects of its bytes, in no more than 64 of them") {
  const rbd::Layout layout{"rbd_data.1", 3, 4 * kMiB, 4 * kMiB, 1};
  CHECK(data_objects(layout, {}) == Names{"rbd_data.1.0000000000000000"});
  CHECK(data_objects(layout, {4 * kMiB - 1, 1}) == Names{"rbd_data.1.0000000000000000"});
  CHECK(data_objects(layout, {4 * kMiB - 1, 2}) == Names{"rbd_data.1.0000000000000000", "rbd_data.1.0000000000000001"});
  CHECK(data_objects(layout, {1024 * kMiB, 4096}) == Names{"rbd_data.1.0000000000000100"});
  CHECK(data_objects(layout, {0, 1024 * kMiB}).size() == 64);
}

// https://docs.ceph.com/en/latest/dev/file-striping
TEST_CASE("a request on a striped image is in the objects of its stripes") {
  const rbd::Layout layout{"rbd_data.2.1", 3, 4 * kMiB, 64 * kKiB, 4};
  CHECK(digits(layout, {0, 64 * kKiB}) == "0");
  CHECK(digits(layout, {64 * kKiB - 1, 2}) == "01");
  CHECK(digits(layout, {0, 4 * kMiB}) == "0123");
  CHECK(digits(layout, {4 * 64 * kKiB, 1}) == "0");
  CHECK(digits(layout, {16 * kMiB - 1, 2}) == "34");
}

TEST_CASE("a client is behind if another one had an answer that it has not", "[failure:270]") {
  CHECK(rbd::compare({true, true}, {true, true}) == Compared::all_answered);
  CHECK(rbd::compare({true, true}, {false, true}) == Compared::all_answered);
  CHECK(rbd::compare({true, false}, {true, true}) == Compared::only_new);
  CHECK(rbd::compare({false, false}, {false, true}) == Compared::only_new);
  // Placement groups are down, or the cluster is.
  CHECK(rbd::compare({true, false}, {true, false}) == Compared::neither);
  CHECK(rbd::compare({true, false}, {false, false}) == Compared::neither);
}
