#include "inherited_links.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "corbd/core/log.hpp"
#include "ending.hpp"
#include "link.hpp"

namespace corbd::nbd {
namespace {
constexpr std::chrono::seconds kGivenFor{60};
constexpr std::chrono::seconds kLooksAgain{1};  // for checking whether a command is still under way
}  // namespace

InheritedLinks::InheritedLinks(executor control, Clock& clock, IoLoop& loop, Config& config)
    : control_(std::move(control)),
      clock_(clock),
      loop_(loop),
      fd_store_(config.fd_store),
      max_request_(config.max_request_bytes),
      lock_(config.commands_lock) {
  std::map<std::uint64_t, std::shared_ptr<const OldArena>> memory;
  for (auto& [token, file] : config.memory) {
    if (fd_store_ == nullptr) break;
    auto opened = OldArena::open(*fd_store_, token, std::move(file));
    if (opened)
      memory.emplace(token, std::move(*opened));
    else
      log::warning("nbd.memory_lost", {{"error", opened.error().text}});
  }
  for (auto& [index, link] : config.inherited) {
    link.until = clock_.now() + kGivenFor;
    const auto arena = memory.find(link.ledger ? arena_of(link.ledger.get()) : 0);
    add_kept(index, {std::move(link), arena != memory.end() ? arena->second : nullptr});
  }
  forget_later();
}

/// If a device has several links, only one of them has not ended.
void InheritedLinks::add_kept(std::uint32_t index, One one) {
  const auto place = links_.find(index);
  if (place == links_.end()) {
    links_.emplace(index, std::move(one));
  } else if (hung_up(place->second.link.socket.get())) {
    discard(place);
    links_.emplace(index, std::move(one));
  } else if (hung_up(one.link.socket.get())) {
    end(index, std::move(one.link));
  } else {
    // Nobody knows which of them the kernel uses.
    end(index, std::move(one.link));
    refuse(place, {errc::failed_precondition, "the device has two live links"});
  }
}

void InheritedLinks::add(std::uint32_t index, InheritedLink link) {
  discard(index);
  link.until = clock_.now() + kGivenFor;
  links_[index] = {std::move(link), nullptr};
  forget_later();
}

bool InheritedLinks::has(const std::string& backend) const {
  return std::ranges::any_of(links_, [&](const auto& one) { return one.second.link.backend == backend; });
}

std::optional<InheritedLinks::Found> InheritedLinks::find(std::uint32_t index, const std::string& backend,
                                                          const image::BlockImage& image, bool read_only) {
  const auto place = links_.find(index);
  if (place == links_.end()) return std::nullopt;
  One& one = place->second;
  // The device was disconnected. Its number may be another's by now, and the bytes in the socket are older.
  if (one.link.backend != backend) {
    refuse(place, {errc::failed_precondition, "the device now belongs to another volume: " + backend});
    return std::nullopt;
  }
  if (hung_up(one.link.socket.get())) {
    refuse(place, {errc::unavailable, "the kernel has ended the link"});
    return std::nullopt;
  }
  Found found;
  if (one.link.ledger) {
    auto inherited = read_inherited(index, one, image, read_only);
    if (!inherited) {
      refuse(place, inherited.error());
      return std::nullopt;
    }
    found.inherited = std::move(*inherited);
  }
  found.socket = std::move(one.link.socket);
  links_.erase(place);
  return found;
}

void InheritedLinks::discard(std::uint32_t index) {
  if (const auto place = links_.find(index); place != links_.end()) discard(place);
}

void InheritedLinks::discard(const std::string& backend) {
  for (auto place = links_.begin(); place != links_.end();)
    place = place->second.link.backend == backend ? discard(place) : std::next(place);
}

void InheritedLinks::discard_all() {
  for (auto place = links_.begin(); place != links_.end();) place = discard(place);
}

task<Waited> InheritedLinks::ended(std::uint32_t index, Until until) {
  // A device has two links if an agent died with both: either may be the kernel's.
  std::vector<std::shared_ptr<Event>> ends;
  const auto [first, last] = ends_.equal_range(index);
  for (auto place = first; place != last; ++place) ends.push_back(place->second);
  for (const auto& end : ends) {
    const Waited waited = co_await end->wait(until);
    if (waited != Waited::ready) co_return waited;
  }
  co_return Waited::ready;
}

void InheritedLinks::forget_later() {
  clock_.cancel(forgets_);
  forgets_ = 0;
  auto next = time_point::max();
  for (const auto& [index, one] : links_) next = std::min(next, one.link.until);
  if (next == time_point::max()) return;
  forgets_ = clock_.schedule(next, [this] {
    for (auto place = links_.begin(); place != links_.end();) {
      const auto now = place++;
      if (now->second.link.until > clock_.now()) continue;
      // A resize of a dead agent may wait for answers that only this link can give, and no other link can be made then.
      if (is_under_way(lock_))
        now->second.link.until = clock_.now() + kLooksAgain;
      else
        refuse(now, {errc::timed_out, "no session resumed it within a minute"});
    }
    forget_later();
  });
}

void InheritedLinks::refuse(Links::iterator place, const Error& why) {
  log_not_resumed(place->second.link.backend, place->first, why);
  discard(place);
}

InheritedLinks::Links::iterator InheritedLinks::discard(Links::iterator place) {
  end(place->first, std::move(place->second.link));
  return links_.erase(place);
}

/// Ends a link that no session has, as Session::hang_up() does.
void InheritedLinks::end(std::uint32_t index, InheritedLink link) {
  close_ledger(link.ledger.get());
  const auto seen = std::make_shared<Event>(control_, clock_);
  std::erase_if(ends_, [](const auto& one) { return one.second->is_set(); });
  ends_.emplace(index, seen);
  auto ended = [control = control_, seen, fd_store = fd_store_, token = link.token] {
    if (fd_store != nullptr && token != 0) static_cast<void>(fd_store->drop(token));
    asio::post(control, [seen] { seen->set(); });
  };
  auto ending = std::make_shared<Ending>(loop_, Ending::Stream(loop_.io().get_executor(), link.socket.release()));
  asio::post(loop_.io(), [ending = std::move(ending), ended = std::move(ended)] { ending->begin(ended); });
}

/// An error: nobody may resume it.
result<std::unique_ptr<InheritedSession>> InheritedLinks::read_inherited(std::uint32_t index, One& one,
                                                                         const image::BlockImage& image,
                                                                         bool read_only) const {
  if (fd_store_ == nullptr) return Error{errc::failed_precondition, "no keeper holds it"};
  InheritedLink& link = one.link;
  Expected expected{index, link.backend, {image.size(), read_only || image.read_only(), max_request_}, {}};
  if (one.arena) expected.arenas.emplace_back(one.arena->token(), one.arena->size());
  auto owed = read_ledger(link.ledger.get(), expected);
  if (!owed) return owed.error();
  auto inherited = std::make_unique<InheritedSession>();
  inherited->fd_store = fd_store_;
  inherited->arena = one.arena;
  inherited->owed = std::move(*owed);
  inherited->device = index;
  inherited->backend = link.backend;
  inherited->token = link.token;
  inherited->ledger = std::move(link.ledger);
  return inherited;
}

}  // namespace corbd::nbd
