// The serving side of a handover.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>

#include "corbd/core/log.hpp"
#include "corbd/core/process.hpp"
#include "passing.hpp"

namespace corbd::handover {
namespace {

constexpr std::chrono::seconds kHearsWithin{5}, kLoadsWithin{10}, kTakesWithin{5};
// Pause after a failure, for example without a free descriptor.
constexpr std::chrono::seconds kAcceptsAgain{1};

result<> check_user(int socket) {
  const auto user = user_of_peer(socket);
  if (!user) return user.error();
  if (*user == ::geteuid()) return {};
  return Error{errc::permission_denied, "user " + std::to_string(*user) + " may not ask for this agent's devices"};
}

/// Answers the caller's greeting. An error: the caller may not have the links.
result<Side> answer(int socket, const result<Message>& said, const Side& own) {
  if (!said) return said.error();
  const auto hello = unpack_hello(said->text);
  if (!hello) return hello.error();
  const auto refused = refusal(*hello, own);
  if (auto sent = send(socket, pack_answer(refused), nullptr, Waits::no); !sent) return sent.error();
  if (refused) return Error{errc::failed_precondition, *refused};
  return hello->side;
}

Error has_no_next() { return {errc::unavailable, "the next agent has ended, or does not answer"}; }

}  // namespace

std::string socket_path(const std::string& runtime_dir) { return runtime_dir + "/handover.sock"; }

std::string identity(const std::string& folder) {
  struct stat found{};
  if (::stat(folder.c_str(), &found) != 0) return {};
  return std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino);
}

Giver::Giver(executor control, Clock& clock, std::string runtime_dir, Side own)
    : control_(control),
      clock_(clock),
      path_(socket_path(runtime_dir)),
      own_(std::move(own)),
      gate_(std::move(control), clock) {}

result<> Giver::start(std::function<void()> asked) {
  asked_ = std::move(asked);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path)
    return Error{errc::invalid_argument, path_ + " is too long for a socket: give a shorter --runtime-dir"};
  path_.copy(address.sun_path, path_.size());
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ::unlink(path_.c_str());
  // The folder is the agent's own (0700). Its socket also gets a private mode before anybody can connect to it.
  if (!listener || ::fchmod(listener.get(), 0600) != 0 ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 4) != 0)
    return Error{errc::unavailable, "waiting for a next agent on " + path_ + ": " + std::strerror(errno)};
  listener_.emplace(control_, listener.release());
  return {};
}

task<> Giver::run() {
  while (listener_ && !next_) {
    boost::system::error_code ended;
    co_await listener_->async_wait(asio::posix::descriptor_base::wait_read,
                                   asio::redirect_error(asio::use_awaitable, ended));
    if (ended || !listener_) co_return;
    Fd caller(::accept4(listener_->native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!caller) {
      static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + kAcceptsAgain));
      continue;
    }
    co_await answer_caller(std::move(caller));
  }
}

task<> Giver::answer_caller(Fd caller) {
  const int socket = caller.get();
  const auto met = std::make_shared<Conversation>(control_, clock_, std::move(caller));
  const auto of_us = check_user(socket);
  result<Side> side = of_us ? result<Side>(Side{}) : of_us.error();
  if (side) side = answer(socket, co_await met->hear({clock_.now() + kHearsWithin}), own_);
  if (!side) {
    log::warning("handover.refused", {{"cause", side.error().text}});
    co_return;
  }
  if (!listener_) co_return;
  next_ = met;
  next_has_ended_ = false;
  next_is_kept_ = side->kept;
  next_listens_ = side->listens;
  next_accepts_refused_ = side->accepts_refused;
  gate_.spawn(hear_next(met));
  // The next agent may have ended already.
  if (next_ == met) asked_();
}

task<> Giver::hear_next(std::shared_ptr<Conversation> next) {
  for (;;) {
    const auto said = co_await next->next_message({});
    if (next_ != next) co_return;
    if (said) {
      note(said->message);
      continue;
    }
    if (said.error().code != errc::cancelled && !said_end_)
      log::warning("handover.next_lost", {{"cause", said.error().text}});
    next_has_ended_ = said.error().code == errc::not_found;
    lose_next();
    co_return;
  }
}

void Giver::note(const PeerMessage& peer_message) {
  if (peer_message.what == PeerMessage::What::ready && ready_) {
    unopened_images_ = peer_message.unopened_images;
    ready_->set();
  }
  if (peer_message.what == PeerMessage::What::loaded && loaded_) loaded_->set();
  const auto taking = peer_message.what == PeerMessage::What::served
                          ? taking_.find({peer_message.kind, peer_message.device})
                          : taking_.end();
  if (taking != taking_.end()) taking->second->set();
}

/// Waiters see that there is no next agent any more.
void Giver::lose_next() {
  next_->end();
  next_.reset();
  for (const auto& answer : {ready_, loaded_})
    if (answer) answer->set();
  for (const auto& [device, taken] : taking_) taken->set();
}

task<bool> Giver::awaits(std::shared_ptr<Event>& answer, PeerMessage peer_message, const Fd* descriptor,
                         duration within) {
  if (!next_) co_return false;
  const auto answered = answer = std::make_shared<Event>(control_, clock_);
  // If the next agent reads nothing any more, its end is the next event.
  static_cast<void>(next_->say(peer_message, descriptor));
  co_return co_await answered->wait({clock_.now() + within}) == Waited::ready&& next_;
}

task<bool> Giver::next_answers(duration within) {
  const bool answered = co_await awaits(ready_, {PeerMessage::What::ready}, nullptr, within);
  if (!answered) {
    log::warning("handover.given_up", {{"cause", "the next agent is not ready, or has ended"}});
    if (next_) lose_next();
  }
  co_return answered;
}

pid_t Giver::next_process() const {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (!next_ || ::getsockopt(next_->socket(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return 0;
  return next_is_kept_ ? parent_of("/proc", peer.pid) : peer.pid;
}

void Giver::stop() {
  listener_.reset();
  ::unlink(path_.c_str());
}

task<bool> Giver::ask_commit(duration within) {
  if (!next_ || !next_->say({PeerMessage::What::begins})) co_return false;
  co_return co_await next_answers(within);
}

task<result<>> Giver::hand_over_lock(const Fd& lock) {
  if (const bool loaded = co_await awaits(loaded_, {PeerMessage::What::lock}, &lock, kLoadsWithin); loaded)
    co_return result<>();
  // An agent that sent something else may live. It has the lock, and goes on with it when it sees our end.
  if (!next_ && next_has_ended_)
    co_return Error{errc::not_found, "the next agent ended before it had read the records"};
  co_return has_no_next();
}

result<> Giver::hand_over_listener(Fd socket, bool registered) {
  if (!next_) return has_no_next();
  return next_->say({.what = PeerMessage::What::listener, .registered = registered}, &socket);
}

task<result<bool>> Giver::hand_over(device::LinkSocket& link) {
  if (!next_) co_return has_no_next();
  const std::pair key{link.kind, link.device};
  const auto taken = taking_[key] = std::make_shared<Event>(control_, clock_);
  const auto sent = next_->say(
      {.what = PeerMessage::What::link, .volume_id = link.volume_id, .device = link.device, .kind = link.kind},
      &link.socket);
  if (sent) link.socket.reset();
  Waited how = Waited::ready;
  if (sent) how = co_await taken->wait({clock_.now() + kTakesWithin});
  taking_.erase(key);
  if (!sent) co_return sent.error();
  if (!next_) co_return has_no_next();
  if (how != Waited::ready)
    log::warning("handover.slow",
                 {{"volume", link.volume_id}, {"effect", "the next agent has the link, but has not confirmed it yet"}});
  co_return how == Waited::ready;
}

result<> Giver::end() {
  if (!next_) return has_no_next();
  said_end_ = true;
  return next_->say({PeerMessage::What::end});
}

void Giver::leave() {
  if (next_) lose_next();
}

}  // namespace corbd::handover
