// librbd's requests to keep an image still for a snapshot. It calls from its own threads, and counts on exactly one
// answer to each request: a second one, or the end of the watch before the first, would end or hang the process.
#pragma once

#include <rbd/librbd.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "corbd/image/image.hpp"
#include "owed_answer.hpp"

namespace corbd::rbd {

/// It outlives its watch.
class QuiesceWatch {
 public:
  using Request = OwedAnswer::Request;
  /// Asks the owner to call complete() with the request on a pool thread.
  using Send = std::function<void(Request, int)>;
  QuiesceWatch(executor control, image::QuiesceHandlers handlers, Send send)
      : control_(std::move(control)), handlers_(std::move(handlers)), send_(std::move(send)) {}
  /// Pool thread.
  result<> begin(rbd_image_t image, const std::string& text);
  /// Answers the request, if that has no answer yet. Pool thread.
  void complete(Request request, int r);
  /// Answers what is left, and ends the watch. Waits for a callback under way. Pool thread.
  result<> end();
  /// Tells the handlers nothing more. librbd may call after the control executor has gone. Control thread.
  void forget();

 private:
  static void on_quiesce(void* watch);
  static void on_unquiesce(void* watch);
  /// False: nobody is told.
  bool post(std::function<void()> what);
  void answer(Request request, int r);
  void refuse();
  std::mutex mutex_;
  const executor control_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< null: nobody is told. Guarded by mutex_
  const image::QuiesceHandlers handlers_;
  const Send send_;
  rbd_image_t image_ = nullptr;
  std::uint64_t handle_ = 0;
  OwedAnswer owed_;
  std::atomic<bool> begun_{false}, ended_{false};
};

}  // namespace corbd::rbd
