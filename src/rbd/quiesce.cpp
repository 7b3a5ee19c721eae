#include "quiesce.hpp"

#include <boost/asio/post.hpp>
#include <cerrno>

#include "failure.hpp"

namespace corbd::rbd {

result<> QuiesceWatch::begin(rbd_image_t image, const std::string& text) {
  image_ = image;
  if (const int r = rbd_quiesce_watch(image, &on_quiesce, &on_unquiesce, this, &handle_); r < 0)
    return failure("watching the snapshots of image " + text, r);
  begun_ = true;
  return {};
}

void QuiesceWatch::complete(Request request, int r) {
  if (const auto told = owed_.take(request, r)) rbd_quiesce_complete(image_, handle_, *told);
}

void QuiesceWatch::refuse() {
  if (const auto told = owed_.take_any(-ESHUTDOWN)) rbd_quiesce_complete(image_, handle_, *told);
}

result<> QuiesceWatch::end() {
  // A request that comes after this is answered by its callback: nobody else would, and the end waits for the answer.
  ended_ = true;
  refuse();
  if (!begun_) return {};
  if (const int r = rbd_quiesce_unwatch(image_, handle_); r < 0) return failure("ending the watch for snapshots", r);
  return {};
}

void QuiesceWatch::forget() {
  const std::lock_guard sole(mutex_);
  alive_.reset();
}

bool QuiesceWatch::post(std::function<void()> what) {
  const std::lock_guard sole(mutex_);
  if (!alive_) return false;
  asio::post(control_, [still = std::weak_ptr<char>(alive_), what = std::move(what)] {
    if (!still.expired()) what();
  });
  return true;
}

/// The pool's threads may all wait for a cluster that is silent: a refusal overtakes the answer that waits with them.
void QuiesceWatch::answer(Request request, int r) {
  if (r < 0) owed_.refuse(request, r);
  send_(request, r);
}

void QuiesceWatch::on_quiesce(void* watch) {
  auto& self = *static_cast<QuiesceWatch*>(watch);
  const Request request = self.owed_.asked();
  const auto ask = [&self, request] {
    const std::weak_ptr<char> still = self.alive_;
    self.handlers_.asked([&self, still, request](int r) {
      if (!still.expired()) self.answer(request, r);
    });
  };
  if (self.ended_ || !self.post(ask)) self.refuse();
}

void QuiesceWatch::on_unquiesce(void* watch) {
  auto& self = *static_cast<QuiesceWatch*>(watch);
  self.post([&self] { self.handlers_.ended(); });
}

}  // namespace corbd::rbd
