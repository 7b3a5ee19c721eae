#include "used.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "failure.hpp"

namespace corbd::rbd {
namespace {

/// Objects that the maps of one count describe. A map has two bits for each: this is 4 MiB of maps, or 64 TiB without a
/// snapshot in objects of 4 MiB.
constexpr std::uint64_t kMostCounted = 16'777'216;

/// A map is read for the image and for each snapshot, one after another, and nothing interrupts that.
constexpr std::uint64_t kMostSnapshots = 32;
/// librbd asks for one object after another if the map of a snapshot is invalid, which no flag of the image says. So
/// the first objects are counted alone, and if they take longer than this, nothing more.
constexpr std::uint64_t kTried = 1024;
constexpr std::chrono::milliseconds kTriedWithin{500};

struct Sum {
  const std::atomic<bool>& stop;
  std::uint64_t bytes = 0;
};

// A negative result ends the walk.
int add_extent(std::uint64_t, std::size_t length, int exists, void* argument) {
  auto& sum = *static_cast<Sum*>(argument);
  if (exists != 0) sum.bytes += length;
  return sum.stop ? -ECANCELED : 0;
}

result<CountSize> size_of(const ImageHandle& opened) {
  CountSize size{.object_bytes = opened.layout.object_bytes};
  if (const int r = rbd_get_size(opened.image, &size.bytes); r < 0) return failure("reading the image's size", r);
  // Too short a list gets the length that it needs, with one for its end.
  rbd_snap_info_t none{};
  int length = 0;
  const int r = rbd_snap_list(opened.image, &none, &length);
  if (r < 0 && r != -ERANGE) return failure("listing the image's snapshots", r);
  size.snapshots = r == -ERANGE ? static_cast<std::uint64_t>(length - 1) : 0;
  return size;
}

}  // namespace

bool fast_diff_is_valid(const ImageHandle& opened) {
  std::uint64_t features = 0, flags = 0;
  return rbd_get_features(opened.image, &features) == 0 && (features & RBD_FEATURE_FAST_DIFF) != 0 &&
         rbd_get_flags(opened.image, &flags) == 0 &&
         (flags & (RBD_FLAG_FAST_DIFF_INVALID | RBD_FLAG_OBJECT_MAP_INVALID)) == 0;
}

bool counts_fast(const CountSize& size) {
  const std::uint64_t objects = size.bytes / size.object_bytes + 1;
  return size.snapshots <= kMostSnapshots && objects <= kMostCounted / (size.snapshots + 1);
}

result<std::optional<std::uint64_t>> used_bytes(const ImageHandle& opened, const std::atomic<bool>& stop) {
  const std::string doing = "counting what image " + opened.text() + " uses";
  if (!fast_diff_is_valid(opened)) return std::optional<std::uint64_t>();
  const auto size = size_of(opened);
  if (!size) return with_context(doing, size.error());
  if (!counts_fast(*size)) return std::optional<std::uint64_t>();
  Sum sum{stop};
  const auto count = [&](std::uint64_t from, std::uint64_t to) {
    if (stop) return -ECANCELED;
    return rbd_diff_iterate2(opened.image, nullptr, from, to - from, /*include_parent=*/0, /*whole_object=*/1,
                             &add_extent, &sum);
  };
  const std::uint64_t tried = std::min(size->bytes, kTried * size->object_bytes);
  const auto begun = std::chrono::steady_clock::now();
  int r = count(0, tried);
  if (r >= 0 && std::chrono::steady_clock::now() - begun > kTriedWithin) return std::optional<std::uint64_t>();
  if (r >= 0 && tried < size->bytes) r = count(tried, size->bytes);
  if (stop) return Error{errc::unavailable, doing + ": it took too long, or the image is being closed"};
  if (r < 0) return failure(doing, opened.connection.observe_result(r));
  return std::optional(sum.bytes);
}

}  // namespace corbd::rbd
