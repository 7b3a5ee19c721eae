// The side that serves.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>

#include "corbd/core/log.hpp"
#include "corbd/handover/handover.hpp"
#include "messages.hpp"
#include "passing.hpp"

namespace corbd::handover {
namespace {

constexpr int kHearsWithin = 5, kReadyWithin = 1;  // s, for each call
// No descriptor is free, say.
constexpr std::chrono::seconds kAcceptsAgain{1};

/// Hears what the caller wants. An error: it is none that may have the links.
result<Fd> hear(Fd caller, const Side& own) {
  const auto user = user_of_peer(caller.get());
  if (!user) return user.error();
  if (*user != ::geteuid())
    return Error{errc::permission_denied, "user " + std::to_string(*user) + " asks for this agent's devices"};
  set_timeouts(caller.get(), kHearsWithin);
  const auto said = receive(caller.get());
  if (!said) return said.error();
  const auto hello = unpack_hello(said->text);
  if (!hello) return hello.error();
  const auto refused = refusal(*hello, own);
  if (auto sent = send(caller.get(), pack_answer(refused)); !sent) return sent.error();
  if (refused) return Error{errc::failed_precondition, *refused};
  return caller;
}

/// Whether the next agent sends the question back.
result<> ask_whether_ready(int next) {
  set_timeouts(next, kReadyWithin);
  Part question;
  question.ready = true;
  if (auto sent = send(next, pack(question)); !sent) return sent;
  const auto answer = receive(next);
  if (!answer) return answer.error();
  const auto part = unpack_part(answer->text);
  if (!part) return part.error();
  if (!part->ready) return Error{errc::internal, "the next agent says something else than asked"};
  return {};
}

result<> send_all(int next, const Estate& all) {
  set_timeouts(next, kHearsWithin);
  for (std::size_t from = 0; from < all.links.size(); from += kMostDescriptors) {
    Part part;
    std::vector<int> sockets;
    for (std::size_t i = from; i < std::min(from + kMostDescriptors, all.links.size()); ++i) {
      part.links.emplace_back(all.links[i].volume_id, all.links[i].device);
      sockets.push_back(all.links[i].socket.get());
    }
    if (auto sent = send(next, pack(part), sockets); !sent) return sent;
  }
  const int lock[] = {all.lock.get()};
  Part last;
  last.lock = true;
  return send(next, pack(last), lock);
}

}  // namespace

std::string socket_path(const std::string& runtime_dir) { return runtime_dir + "/handover.sock"; }

std::string identity(const std::string& folder) {
  struct stat found{};
  if (::stat(folder.c_str(), &found) != 0) return {};
  return std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino);
}

Giver::Giver(executor control, Clock& clock, BlockingPool& files, std::string runtime_dir, Side own)
    : control_(std::move(control)),
      clock_(clock),
      files_(files),
      path_(socket_path(runtime_dir)),
      own_(std::move(own)) {}

result<> Giver::start(std::function<void()> asked) {
  asked_ = std::move(asked);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path)
    return Error{errc::invalid_argument, path_ + " is too long for a socket: give a shorter --runtime-dir"};
  path_.copy(address.sun_path, path_.size());
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ::unlink(path_.c_str());
  // The folder is the agent's own (0700); the socket is, too, before anybody can connect to it.
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
    Fd caller(::accept4(listener_->native_handle(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!caller) {
      static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + kAcceptsAgain));
      continue;
    }
    const auto holder = std::make_shared<Fd>(std::move(caller));
    auto met = co_await files_.run([holder, own = own_] { return hear(std::move(*holder), own); }, {},
                                   "hearing the next agent");
    if (!met) {
      log::warning("handover.refused", {{"why", met.error().text}});
      continue;
    }
    next_ = std::make_shared<Fd>(std::move(*met));
    asked_();
  }
}

task<bool> Giver::next_answers() {
  const auto ready = co_await files_.run([next = next_] { return ask_whether_ready(next->get()); }, {},
                                         "asking the next agent whether it is ready");
  if (!ready) {
    log::warning("handover.given_up", {{"why", ready.error().text}});
    next_.reset();
  }
  co_return ready.has_value();
}

void Giver::stop() {
  listener_.reset();
  ::unlink(path_.c_str());
}

task<result<>> Giver::give(Estate estate) {
  const auto holder = std::make_shared<Estate>(std::move(estate));
  auto job = [next = next_, holder] {
    // Nothing of it is open any more when the job has ended.
    const Estate all = std::move(*holder);
    return send_all(next->get(), all);
  };
  co_return co_await files_.run(std::move(job), {}, "giving the devices to the next agent");
}

}  // namespace corbd::handover
