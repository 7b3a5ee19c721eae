#include "server.hpp"

#include <cassert>
#include <utility>

namespace corbd::volume {

void Server::set(OpenImage image) {
  assert(!link_);
  what_ = std::move(image);
}

void Server::set(Tombstone tombstone) {
  assert(!link_);
  what_ = std::move(tombstone);
}

void Server::set(OwnLink link) {
  if (image() != nullptr) link_ = std::move(link);
}

image::Image* Server::image() const {
  if (const auto* open = own()) return open->image.get();
  if (const auto* tombstone = std::get_if<Tombstone>(&what_)) return tombstone->image.get();
  return nullptr;
}

void Server::set_connected(bool connected) {
  if (link_) link_->connected = connected;
}

std::unique_ptr<device::Link> Server::take_link() {
  auto taken = std::exchange(link_, std::nullopt);
  return taken ? std::move(taken->link) : nullptr;
}

std::unique_ptr<image::Image> Server::take_image() {
  assert(!link_);
  auto all = std::exchange(what_, std::monostate());
  if (auto* open = std::get_if<OpenImage>(&all)) return std::move(open->image);
  if (auto* tombstone = std::get_if<Tombstone>(&all)) return std::move(tombstone->image);
  return nullptr;
}

}  // namespace corbd::volume
