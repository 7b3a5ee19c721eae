#include "commands.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "corbd/core/log.hpp"

namespace corbd::nbd {
namespace {

constexpr std::chrono::milliseconds kLooksEvery{20};
/// Another agent's command takes milliseconds, unless it is a resize that waits for requests in flight.
constexpr int kLooksUntilTold = 250;

/// errc::busy: a command of another agent is under way, or one of a helper that outlived its agent. Waiting for the
/// lock in the kernel would keep this process from ending.
result<Fd> take_turn(const std::string& file) {
  if (file.empty()) return Fd();
  Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd)
    return Error{errno == EMFILE || errno == ENFILE ? errc::exhausted : errc::state_write,
                 "opening " + file + ": " + std::strerror(errno)};
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK || errno == EINTR) return Error{errc::busy, file + " is locked"};
  return Error{errc::state_write, "locking " + file + ": " + std::strerror(errno)};
}

}  // namespace

bool is_under_way(const std::string& lock) {
  const auto turn = take_turn(lock);
  return !turn && turn.error().code == errc::busy;
}

Commands::Place Commands::add(std::string backend, device::Command told, Start start,
                              std::function<void(const Error&)> refuse) {
  if (closed_) return nullptr;
  const auto place = std::make_shared<Ticket>();
  place->backend_ = std::move(backend);
  place->told_ = std::move(told);
  place->start_ = std::move(start);
  place->refuse_ = std::move(refuse);
  all_.push_back(place);
  begin_next();
  return place;
}

void Commands::begin_next() {
  while (!looks_again_ && !all_.empty() && !all_.front()->begun_) {
    const auto place = all_.front();
    auto turn = take_turn(lock_);
    if (!turn && turn.error().code == errc::busy) return look_again();
    looks_ = 0;
    if (turn) {
      place->begun_ = true;
      return std::exchange(place->start_, {})(std::make_shared<Fd>(std::move(*turn)));
    }
    all_.pop_front();
    place->refuse_(turn.error());
  }
}

void Commands::look_again() {
  if (++looks_ == kLooksUntilTold)
    log::warning(
        "nbd.commands_wait",
        {{"cause",
          "a helper of an ended agent still resizes a device and waits for its requests in flight, or another "
          "agent's command takes long"},
         {"effect", "no device is connected, reconnected or disconnected meanwhile; served devices stay served"},
         {"hint",
          "it ends when that device is served again and its cluster answers; otherwise reboot the "
          "node"}});
  looks_again_ = true;
  clock_.schedule(clock_.now() + kLooksEvery, [this, alive = std::weak_ptr<void>(alive_)] {
    if (alive.expired()) return;
    looks_again_ = false;
    begin_next();
    note_none();
  });
}

void Commands::drop(const Place& place) {
  all_.remove(place);
  note_none();
}

/// A helper that outlived the predecessor may wait for answers of this agent.
void Commands::note_none() {
  if (!closed_ || !all_.empty() || looks_again_) return;
  if (is_under_way(lock_)) return look_again();
  none_.set();
}

void Commands::ended() {
  drop(Place(all_.front()));
  begin_next();
}

void Commands::leave(const Place& place) {
  if (!place->begun_) drop(place);
}

std::optional<device::Command> Commands::find(const std::string& backend) const {
  const auto place = std::ranges::find_if(all_, [&](const auto& one) { return one->backend_ == backend; });
  if (place == all_.end()) return std::nullopt;
  return (*place)->told_;
}

void Commands::close() {
  closed_ = true;
  for (const auto& place : std::list(all_)) {
    if (place->begun_) continue;
    drop(place);
    place->refuse_({errc::unavailable, "the agent is leaving"});
  }
  note_none();
}

}  // namespace corbd::nbd
