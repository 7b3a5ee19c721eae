#include "server.hpp"

#include <utility>

namespace corbd::volume {

image::Image* Server::image() const {
  if (const auto* open = own()) return open->image.get();
  if (const auto* tombstone = std::get_if<Tombstone>(&what_)) return tombstone->image.get();
  return nullptr;
}

OwnLink* Server::own_link() {
  std::optional<OwnLink>* found = nullptr;
  if (auto* open = own()) found = &open->own_link;
  if (auto* tombstone = std::get_if<Tombstone>(&what_)) found = &tombstone->own_link;
  return found == nullptr || !*found ? nullptr : &**found;
}

void Server::set(OwnLink link) {
  if (auto* open = own()) open->own_link = std::move(link);
  if (auto* tombstone = std::get_if<Tombstone>(&what_)) tombstone->own_link = std::move(link);
}

void Server::set_connected(bool connected) {
  if (auto* now = own_link()) now->connected = connected;
}

std::unique_ptr<device::Link> Server::take_link() {
  std::unique_ptr<device::Link> link;
  if (auto* now = own_link()) link = std::move(now->link);
  if (auto* open = own()) open->own_link.reset();
  if (auto* tombstone = std::get_if<Tombstone>(&what_)) tombstone->own_link.reset();
  return link;
}

std::unique_ptr<image::Image> Server::take_image() {
  auto all = std::exchange(what_, std::monostate());
  if (auto* open = std::get_if<OpenImage>(&all)) return std::move(open->image);
  if (auto* tombstone = std::get_if<Tombstone>(&all)) return std::move(tombstone->image);
  return nullptr;
}

}  // namespace corbd::volume
