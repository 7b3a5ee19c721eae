#include "server.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "corbd/core/log.hpp"

namespace corbd::volume {

void Server::set(OwnImage image) {
  expect_no_link();
  what_ = std::move(image);
}

void Server::set(Tombstone tombstone) {
  expect_no_link();
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

duration Server::unanswered() const {
  const duration of_device = link() != nullptr ? link()->oldest() : duration::zero();
  return serves() && own() != nullptr ? std::max(of_device, own()->image->unanswered()) : of_device;
}

std::unique_ptr<device::Link> Server::take_link() {
  auto taken = std::exchange(link_, std::nullopt);
  return taken ? std::move(taken->link) : nullptr;
}

/// A link whose image is gone would write into freed memory. The next agent heals every device.
void Server::expect_no_link() const {
  if (!link_) return;
  log::error("volume.image_under_link", {{"effect", "this agent ends, and the next one heals every device"}});
  std::abort();
}

std::unique_ptr<image::Image> Server::take_image() {
  expect_no_link();
  auto all = std::exchange(what_, std::monostate());
  if (auto* open = std::get_if<OwnImage>(&all)) return std::move(open->image);
  if (auto* tombstone = std::get_if<Tombstone>(&all)) return std::move(tombstone->image);
  return nullptr;
}

}  // namespace corbd::volume
