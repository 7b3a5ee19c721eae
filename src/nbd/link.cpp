#include "link.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>

namespace corbd::nbd {

struct Link::Events {
  Events(executor control, Clock& clock) : ended(control, clock), idle(control, clock), drained(control, clock) {}
  static task<Waited> wait(std::shared_ptr<Events> events, Event Events::* which, Until until) {
    co_return co_await ((*events).*which).wait(until);
  }
  Event ended, idle, drained;
};

Link::Link(executor control, Clock& clock, IoLoop& loop, image::Image& image, device::ServeOptions options, Fd socket,
           Fd kernel_end, std::function<void()> on_stopped, Probe& probe, std::unique_ptr<Left> left)
    : control_(control),
      clock_(clock),
      loop_(loop),
      kernel_end_(std::make_shared<KernelEnd>()),
      events_(std::make_shared<Events>(control, clock)) {
  kernel_end_->socket = std::move(kernel_end);
  Session::Notices notices;
  notices.stopped = [control, on_stopped = std::move(on_stopped)] {
    if (on_stopped) asio::post(control, on_stopped);
  };
  notices.ended = [control, events = events_] { asio::post(control, [events] { events->ended.set(); }); };
  notices.idle = [control, events = events_] { asio::post(control, [events] { events->idle.set(); }); };
  notices.drained = [control, events = events_] { asio::post(control, [events] { events->drained.set(); }); };
  notices.loss_told = [control, told = std::move(options.on_loss_told)] {
    if (told) asio::post(control, told);
  };
  session_ = std::make_unique<Session>(loop, image, std::move(options), std::move(socket), std::move(notices), probe,
                                       std::move(left));
  asio::post(loop_.io(), [session = session_.get()] { session->start(); });
}

Link::~Link() {
  asio::post(loop_.io(), [session = std::move(session_)]() mutable {
    Session& leaving = *session;
    leaving.detach(std::move(session));
  });
}

/// The kernel did not get it, and no command has it any more. Nobody else would end that side.
void Link::close_unused_end() {
  if (kernel_end_.use_count() == 1) kernel_end_->socket.reset();
}

void Link::shut() {
  close_unused_end();
  asio::post(loop_.io(), [session = session_.get()] { session->shut(); });
}

void Link::hold() {
  close_unused_end();
  asio::post(loop_.io(), [session = session_.get()] { session->hold(); });
}

task<Waited> Link::ended(Until until) { return Events::wait(events_, &Events::ended, until); }

task<Waited> Link::idle(Until until) { return Events::wait(events_, &Events::idle, until); }

task<Waited> Link::drain(Until until) {
  asio::post(loop_.io(), [session = session_.get()] { session->drain(); });
  return Events::wait(events_, &Events::drained, until);
}

task<result<Fd>> Link::give(Until until) {
  Promise<Fd> promise(control_, clock_);
  const auto future = promise.future();
  asio::post(loop_.io(), [session = session_.get(), promise] {
    Fd socket = session->give();
    if (socket)
      promise.set(std::move(socket));
    else
      promise.set(Error{errc::unavailable, "the link has ended, or has something left to answer"});
  });
  co_return co_await future.get(until, "the link to be given away");
}

void Link::name(std::string backend) {
  asio::post(loop_.io(),
             [session = session_.get(), backend = std::move(backend)]() mutable { session->name(std::move(backend)); });
}

void Link::keep(std::uint32_t device, std::string backend) {
  asio::post(loop_.io(),
             [session = session_.get(), device, backend = std::move(backend)] { session->keep(device, backend); });
}

bool Link::connected() const {
  char byte;
  const bool at_end = ::recv(session_->socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  return !at_end && state() == State::serving;
}

bool hung_up(int socket) {
  pollfd asked{socket, POLLRDHUP, 0};
  return ::poll(&asked, 1, 0) != 0;
}

}  // namespace corbd::nbd
