#include "given_links.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "corbd/core/log.hpp"
#include "link.hpp"

namespace corbd::nbd {
namespace {
constexpr std::chrono::seconds kGivenFor{60};
}  // namespace

GivenLinks::GivenLinks(Clock& clock, Config& config)
    : clock_(clock), keep_(config.keep), max_request_(config.max_request_bytes) {
  for (auto& [index, link] : config.kept) {
    link.until = clock_.now() + kGivenFor;
    const auto place = given_.find(index);
    if (place != given_.end() && hung_up(place->second.socket.get())) discard(place);
    if (!given_.try_emplace(index, std::move(link)).second) end(link);
  }
  for (auto& [token, file] : config.memory) remember_memory(token, std::move(file));
  forget_later();
  if (given_.empty()) memory_.clear();
}

void GivenLinks::add(std::uint32_t index, GivenLink link) {
  discard(index);
  link.until = clock_.now() + kGivenFor;
  given_[index] = std::move(link);
  forget_later();
}

std::optional<GivenLinks::Found> GivenLinks::find(std::uint32_t index, const std::string& backend,
                                                  const image::Image& image, bool read_only) {
  const auto place = given_.find(index);
  if (place == given_.end()) return std::nullopt;
  // Somebody disconnected the device. Its number may be another's by now, and what lies in the socket is older.
  if (place->second.backend != backend || hung_up(place->second.socket.get())) {
    discard(place);
    return std::nullopt;
  }
  Found found;
  if (place->second.ledger) {
    found.left = read_left(index, place->second, image, read_only);
    if (!found.left) {
      discard(place);
      return std::nullopt;
    }
  }
  found.socket = std::move(place->second.socket);
  forget(place);
  return found;
}

void GivenLinks::discard(std::uint32_t index) {
  if (const auto place = given_.find(index); place != given_.end()) discard(place);
}

void GivenLinks::discard(const std::string& backend) {
  discard_all([&](const GivenLink& one) { return one.backend == backend; });
}

void GivenLinks::forget_later() {
  clock_.cancel(forgets_);
  forgets_ = 0;
  auto next = time_point::max();
  for (const auto& [index, given] : given_) next = std::min(next, given.until);
  if (next == time_point::max()) return;
  forgets_ = clock_.schedule(next, [this] {
    discard_all([this](const GivenLink& one) { return one.until <= clock_.now(); });
    forget_later();
  });
}

GivenLinks::Given::iterator GivenLinks::forget(Given::iterator place) {
  const auto next = given_.erase(place);
  if (given_.empty()) memory_.clear();
  return next;
}

GivenLinks::Given::iterator GivenLinks::discard(Given::iterator place) {
  end(place->second);
  return forget(place);
}

void GivenLinks::end(const GivenLink& link) {
  ::shutdown(link.socket.get(), SHUT_RDWR);
  if (keep_ != nullptr && link.token != 0) static_cast<void>(keep_->drop(link.token));
}

template <class Which>
void GivenLinks::discard_all(Which which) {
  for (auto place = given_.begin(); place != given_.end();)
    place = which(place->second) ? discard(place) : std::next(place);
}

void GivenLinks::remember_memory(std::uint64_t token, Fd file) {
  if (keep_ == nullptr) return;
  auto opened = OldArena::open(*keep_, token, std::move(file));
  if (opened)
    memory_.push_back(std::move(*opened));
  else
    log::warning("nbd.not_resumed", {{"error", opened.error().text}});
}

/// nullptr, and the log says why: nobody may go on with it.
std::unique_ptr<Left> GivenLinks::read_left(std::uint32_t index, const GivenLink& given, const image::Image& image,
                                            bool read_only) {
  Expected expected{index, given.backend, {image.size(), read_only || image.read_only(), max_request_}, {}};
  for (const auto& arena : memory_) expected.arenas.emplace_back(arena->token(), arena->bytes().size());
  auto owed = keep_ != nullptr ? read_ledger(given.ledger.get(), expected)
                               : result<Settled>(Error{errc::failed_precondition, "nobody keeps it"});
  if (!owed) {
    log::warning("nbd.not_resumed", {{"volume", given.backend},
                                     {"device", device::path(index)},
                                     {"error", owed.error().text},
                                     {"effect", "the kernel repeats the requests in flight on a new link"}});
    return nullptr;
  }
  const auto arena = std::ranges::find(memory_, owed->arena, [](const auto& one) { return one->token(); });
  auto left = std::make_unique<Left>();
  left->keep = keep_;
  if (arena != memory_.end()) left->arena = *arena;
  left->owed = std::move(*owed);
  left->device = index;
  left->backend = given.backend;
  left->token = given.token;
  return left;
}

}  // namespace corbd::nbd
