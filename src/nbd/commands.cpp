#include "commands.hpp"

#include <algorithm>
#include <utility>

namespace corbd::nbd {

Commands::Place Commands::add(std::string backend, device::Command told, std::function<void()> refuse) {
  if (closed_) return nullptr;
  const auto place = std::make_shared<Ticket>();
  place->backend_ = std::move(backend);
  place->told_ = std::move(told);
  place->refuse_ = std::move(refuse);
  all_.push_back(place);
  return place;
}

void Commands::remove(const Place& place) {
  all_.remove(place);
  if (closed_ && all_.empty()) none_.set();
}

std::optional<device::Command> Commands::find(const std::string& backend) const {
  const auto place = std::ranges::find_if(all_, [&](const auto& one) { return one->backend_ == backend; });
  if (place == all_.end()) return std::nullopt;
  return (*place)->told_;
}

void Commands::close() {
  closed_ = true;
  for (const auto& place : std::list(all_)) {
    if (!place->begin()) continue;
    place->refuse_();
    all_.remove(place);
  }
  if (all_.empty()) none_.set();
}

}  // namespace corbd::nbd
