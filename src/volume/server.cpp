#include "server.hpp"

#include <utility>

namespace corbd::volume {

image::Image* Server::image() const {
  if (const auto* open = own()) return open->image.get();
  if (const auto* tombstone = std::get_if<Tombstone>(&what_)) return tombstone->image.get();
  return nullptr;
}

std::optional<OwnLink>* Server::place() {
  if (auto* open = own()) return &open->own_link;
  if (auto* tombstone = std::get_if<Tombstone>(&what_)) return &tombstone->own_link;
  return nullptr;
}

OwnLink* Server::own_link() {
  auto* found = place();
  return found == nullptr || !*found ? nullptr : &**found;
}

void Server::set(OwnLink link) {
  if (auto* into = place()) *into = std::move(link);
}

void Server::set_connected(bool connected) {
  if (auto* now = own_link()) now->connected = connected;
}

std::unique_ptr<device::Link> Server::take_link() {
  auto* from = place();
  if (from == nullptr || !*from) return nullptr;
  auto link = std::move((*from)->link);
  from->reset();
  return link;
}

std::unique_ptr<image::Image> Server::take_image() {
  auto all = std::exchange(what_, std::monostate());
  if (auto* open = std::get_if<OpenImage>(&all)) return std::move(open->image);
  if (auto* tombstone = std::get_if<Tombstone>(&all)) return std::move(tombstone->image);
  return nullptr;
}

}  // namespace corbd::volume
