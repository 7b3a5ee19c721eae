#include "emptiness.hpp"

#include <algorithm>

#include "failure.hpp"
#include "used.hpp"

namespace corbd::rbd {
namespace {

// Bytes between two checks of `stop`. That is one check for 256 objects of 4 MiB that are asked one by one, or for a
// map of 16,384.
constexpr std::uint64_t kSlowStep = 1ULL << 30;
constexpr std::uint64_t kFastStep = 64ULL << 30;
constexpr int kFound = -ECANCELED;  // a negative result ends the walk and is returned

struct Walk {
  const std::atomic<bool>& stop;
  bool found = false;
};

int on_extent(std::uint64_t, std::size_t, int exists, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  if (exists != 0) walk.found = true;
  return walk.found || walk.stop ? kFound : 0;
}

}  // namespace

result<bool> has_data(const ImageHandle& opened, std::uint64_t size, const std::atomic<bool>& stop) {
  const bool fast = fast_diff_is_valid(opened);
  const std::uint64_t step = fast ? kFastStep : kSlowStep;
  for (std::uint64_t at = 0; at < size; at += step) {
    if (stop) return Error{errc::unavailable, "looking for data in image " + opened.text() + " took too long"};
    Walk walk{stop};
    const int r =
        rbd_diff_iterate2(opened.image, nullptr, at, std::min(step, size - at), 1, fast ? 1 : 0, &on_extent, &walk);
    if (walk.found) return true;
    if (r < 0 && !stop)
      return failure("looking for data in image " + opened.text(), opened.connection.observe_result(r));
    if (r < 0) return Error{errc::unavailable, "looking for data in image " + opened.text() + " took too long"};
  }
  return false;
}

}  // namespace corbd::rbd
