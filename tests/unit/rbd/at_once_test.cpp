#include "at_once.hpp"

#include <atomic>
#include <set>

#include "support/catch.hpp"

using namespace corbd::rbd;

namespace {

/// As on a node that has no more threads.
struct NoThread {
  template <class Work>
  explicit NoThread(const Work&) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  }
};

}  // namespace

TEST_CASE("parallel work in groups covers every item") {
  std::atomic<int> sum{0};
  at_once(10, 4, [&](std::size_t i) { sum += static_cast<int>(i); });
  CHECK(sum == 45);
}

TEST_CASE("work that gets no thread runs on the caller's") {
  std::set<std::size_t> done;
  at_once<NoThread>(5, 2, [&](std::size_t i) { done.insert(i); });
  CHECK(done == std::set<std::size_t>{0, 1, 2, 3, 4});
}
