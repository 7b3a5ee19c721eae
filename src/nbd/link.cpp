#include "link.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>

namespace corbd::nbd {

namespace {

/// Keeps the event alive, because this may outlive the link.
task<Waited> wait_for(std::shared_ptr<Event> event, Until until) { co_return co_await event->wait(until); }

}  // namespace

NbdLink::NbdLink(executor control, Clock& clock, IoLoop& loop, image::BlockImage& image, device::ServeOptions options,
                 Fd socket, Fd kernel_end, std::function<void()> on_stopped, Counters& counters,
                 std::unique_ptr<InheritedSession> inherited)
    : control_(control),
      clock_(clock),
      loop_(loop),
      kernel_end_(std::make_shared<KernelEnd>()),
      ended_(std::make_shared<Event>(control, clock)),
      idle_(std::make_shared<Event>(control, clock)) {
  kernel_end_->socket = std::move(kernel_end);
  Session::Notices notices;
  notices.stopped = [control, on_stopped = std::move(on_stopped)] {
    if (on_stopped) asio::post(control, on_stopped);
  };
  notices.ended = [control, ended = ended_] { asio::post(control, [ended] { ended->set(); }); };
  notices.idle = [control, idle = idle_] { asio::post(control, [idle] { idle->set(); }); };
  session_ = std::make_unique<Session>(loop, image, options, std::move(socket), std::move(notices), counters,
                                       std::move(inherited));
  asio::post(loop_.io(), [session = session_.get()] { session->start(); });
}

NbdLink::~NbdLink() {
  asio::post(loop_.io(), [session = std::move(session_)]() mutable {
    Session& leaving = *session;
    leaving.detach(std::move(session));
  });
}

/// The kernel did not get it, and no command has it any more, so nobody else would close that end.
void NbdLink::close_unused_end() {
  if (kernel_end_.use_count() == 1) kernel_end_->socket.reset();
}

void NbdLink::shut() {
  close_unused_end();
  asio::post(loop_.io(), [session = session_.get()] { session->shut(); });
}

void NbdLink::hold() {
  close_unused_end();
  asio::post(loop_.io(), [session = session_.get()] { session->hold(); });
}

task<Waited> NbdLink::ended(Until until) { return wait_for(ended_, until); }

task<Waited> NbdLink::idle(Until until) { return wait_for(idle_, until); }

task<Waited> NbdLink::drain(Until until) {
  if (!drained_) drained_ = std::make_shared<Event>(control_, clock_);
  auto told = [control = control_, drained = drained_] { asio::post(control, [drained] { drained->set(); }); };
  asio::post(loop_.io(), [session = session_.get(), told = std::move(told)] { session->drain(told); });
  return wait_for(drained_, until);
}

void NbdLink::undrain() {
  drained_.reset();
  asio::post(loop_.io(), [session = session_.get()] { session->undrain(); });
}

task<result<Fd>> NbdLink::hand_over(Until until) {
  Promise<Fd> promise(control_, clock_);
  const auto future = promise.future();
  asio::post(loop_.io(), [session = session_.get(), promise] {
    Fd socket = session->hand_over();
    if (socket)
      promise.set(std::move(socket));
    else
      promise.set(Error{errc::unavailable, "the link has ended, or has something left to answer"});
  });
  co_return co_await future.get(until, "the link to be handed over");
}

void NbdLink::name(std::string backend) {
  asio::post(loop_.io(),
             [session = session_.get(), backend = std::move(backend)]() mutable { session->name(std::move(backend)); });
}

void NbdLink::keep(std::uint32_t device, std::string backend) {
  asio::post(loop_.io(),
             [session = session_.get(), device, backend = std::move(backend)] { session->keep(device, backend); });
}

bool NbdLink::connected() const {
  char byte;
  const bool at_end = ::recv(session_->socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  return !at_end && state() == State::serving;
}

bool hung_up(int socket) {
  pollfd asked{socket, POLLRDHUP, 0};
  return ::poll(&asked, 1, 0) != 0;
}

}  // namespace corbd::nbd
