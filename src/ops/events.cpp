#include "events.hpp"

#include <algorithm>

namespace corbd::ops {

void Events::push(volume::Change change) {
  kept_.push_back(std::move(change));
  if (kept_.size() > keep_) kept_.pop_front();
  ++last_;
  arrived_->set();
  renew();
}

Events::Page Events::read(std::uint64_t after, std::size_t limit) const {
  const std::uint64_t before_kept = last_ - kept_.size();
  const std::uint64_t from = std::clamp(after, before_kept, last_);
  const std::uint64_t to = std::min<std::uint64_t>(last_, from + limit);
  const auto at = [&](std::uint64_t number) {
    return kept_.begin() + static_cast<std::ptrdiff_t>(number - before_kept);
  };
  return {{at(from), at(to)}, from > after ? from - after : 0, to};
}

task<Waited> Events::beyond(std::uint64_t after, Until until) {
  while (last_ <= after) {
    const auto arrived = arrived_;
    const Waited how = co_await arrived->wait(until);
    if (how != Waited::ready) co_return how;
  }
  co_return Waited::ready;
}

}  // namespace corbd::ops
