// Implements the keeper's store.
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "corbd/core/log.hpp"
#include "corbd/device/link_end.hpp"
#include "corbd/keeper/keeper.hpp"
#include "wire.hpp"

namespace corbd::keeper {
namespace {
// An agent that is killed while it starts is no sign of a bad link.
constexpr int kMostAgents = 10;

/// Ends links that no agent has, or only one that never took them.
void end_all(const std::vector<StoredLink>& links) {
  std::vector<int> sockets;
  for (const StoredLink& one : links) sockets.push_back(one.socket.get());
  device::end_links(sockets);
}
}  // namespace

void Store::give_all(int socket) {
  end_all(std::exchange(unheard_, {}));
  static_cast<void>(tell(socket, {Kind::protocol, kProtocol, 0, 0}, {}, {}));  // an agent that misses it ends
  std::erase_if(stored_.memory, [&](const StoredMemory& one) {
    const int fds[] = {one.file.get()};
    return !tell(socket, {Kind::memory, 0, one.token, 0}, {}, fds);
  });
  std::erase_if(stored_.listeners, [&](const StoredListener& one) {
    const int fds[] = {one.socket.get()};
    return !tell(socket, {Kind::listener, one.registered ? 1u : 0u, 0, 0}, one.path, fds);
  });
  std::vector<StoredLink> ends;
  std::erase_if(stored_.links, [&](StoredLink& one) {
    const bool given = give(socket, one);
    if (!given) ends.push_back(std::move(one));
    return !given;
  });
  end_all(ends);
  deaf_ = false;
  const auto& [count, signal, last, pause] = stored_.deaths;
  const auto when = std::chrono::duration_cast<std::chrono::nanoseconds>(last.time_since_epoch()).count();
  static_cast<void>(tell(
      socket, {Kind::deaths, count, static_cast<std::uint64_t>(when), static_cast<std::uint64_t>(signal)}, {}, {}));
  const auto paused = std::chrono::duration_cast<std::chrono::nanoseconds>(pause).count();
  static_cast<void>(tell(socket, {Kind::pause, 0, static_cast<std::uint64_t>(paused), 0}, {}, {}));
  static_cast<void>(tell(socket, {}, {}, {}));  // an agent that misses it reports that
}

bool Store::give(int socket, StoredLink& one) {
  if (one.given++ == kMostAgents) {
    log::error("keeper.link_given_up", {{"volume", one.link.backend}, {"agents", kMostAgents}});
    return false;
  }
  const int fds[] = {one.socket.get(), one.ledger.get()};
  const auto told = tell(socket, {Kind::link, one.link.device, one.link.token, 0}, one.link.backend, fds);
  if (!told) log::warning("keeper.send_failed", {{"volume", one.link.backend}, {"error", told.error().text}});
  return told.has_value();
}

void Store::begin_anew() {
  let_go();
  drop_listeners();
  stored_.deaths = {};
}

void Store::note_death(int signal, time_point when, duration pause) {
  stored_.deaths = {stored_.deaths.count + 1, signal, when, pause};
}

void Store::let_go() {
  end_all(stored_.links);
  end_all(std::exchange(unheard_, {}));
  stored_.links.clear();
  stored_.memory.clear();
}

bool Store::all_taken() const {
  return std::ranges::none_of(stored_.links, [](const StoredLink& one) { return one.given > 0; });
}

void Store::hear(int socket) {
  for (;;) {
    auto heard = keeper::hear(socket, Waits::no);
    if (heard) {
      // A link that an agent hands over is another agent's, even if other messages were lost.
      if (!deaf_ || heard->note.kind == Kind::drop || heard->note.kind == Kind::drop_listener) take_in(*heard);
    } else if (heard.error().code == errc::timed_out || heard.error().code == errc::not_found ||
               heard.error().code == errc::unavailable) {
      return;
    } else {
      be_deaf(socket, heard.error());
    }
  }
}

/// Drops everything, because nobody knows which entry the lost message replaced. A wrong ledger, or a link that its
/// agent hands over, would be worse than none. The agent has the links itself, and notices when it sends its next
/// message. It may be dead, with this the last end of its links: they end with the next one.
void Store::be_deaf(int socket, const Error& why) {
  deaf_ = true;
  for (StoredLink& one : stored_.links) unheard_.push_back(std::move(one));
  stored_.links.clear();
  stored_.memory.clear();
  stored_.listeners.clear();
  ::shutdown(socket, SHUT_RDWR);  // ends no link: this is the agent's socket
  log::warning("keeper.store_disabled", {{"error", why.text}});
}

void Store::take_in(Heard& heard) {
  const KeeperMessage& note = heard.note;
  auto& fds = heard.descriptors;
  if (note.kind == Kind::link) {
    stored_.links.push_back({{note.token, note.device, heard.backend, 0}, std::move(fds[0]), std::move(fds[1])});
    if (note.instead_of != 0) drop(note.instead_of);
  } else if (note.kind == Kind::memory) {
    stored_.memory.push_back({note.token, std::move(fds[0])});
  } else if (note.kind == Kind::drop) {
    drop(note.token);
  } else if (note.kind == Kind::listener || note.kind == Kind::drop_listener) {
    std::erase_if(stored_.listeners, [&](const StoredListener& one) { return one.path == heard.backend; });
    if (note.kind == Kind::listener) stored_.listeners.push_back({heard.backend, note.device != 0, std::move(fds[0])});
  }
}

void Store::drop(std::uint64_t token) {
  const auto is_it = [&](const StoredLink& one) { return one.link.token == token; };
  std::erase_if(stored_.links, is_it);
  std::erase_if(unheard_, is_it);
  std::erase_if(stored_.memory, [&](const StoredMemory& one) { return one.token == token; });
}

}  // namespace corbd::keeper
