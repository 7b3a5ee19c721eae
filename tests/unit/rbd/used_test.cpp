#include "used.hpp"

#include "support/catch.hpp"

using namespace corbd;

TEST_CASE("an image is counted up to 16,777,216 objects, and its snapshots count like images") {
  constexpr std::uint64_t object = 4 << 20, most = std::uint64_t{64} << 40;
  CHECK(rbd::counts_fast({.bytes = most - object, .object_bytes = object}));
  CHECK_FALSE(rbd::counts_fast({.bytes = most, .object_bytes = object}));
  CHECK(rbd::counts_fast({.bytes = most / 4 - object, .object_bytes = object, .snapshots = 3}));
  CHECK_FALSE(rbd::counts_fast({.bytes = most / 4, .object_bytes = object, .snapshots = 3}));
}

TEST_CASE("an image with more than 32 snapshots is not counted, since each of their maps is read") {
  constexpr std::uint64_t object = 4 << 20;
  CHECK(rbd::counts_fast({.bytes = std::uint64_t{1} << 30, .object_bytes = object, .snapshots = 32}));
  CHECK_FALSE(rbd::counts_fast({.bytes = std::uint64_t{1} << 30, .object_bytes = object, .snapshots = 33}));
}
