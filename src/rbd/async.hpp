// Awaits the completions of librbd and librados.
#pragma once

#include <rbd/librbd.h>

#include <memory>

#include "corbd/core/wait.hpp"

namespace corbd::rbd {

/// Runs on a librbd thread, which must not wait. So it only posts.
inline void deliver(rbd_completion_t completion, void* argument) {
  const std::unique_ptr<Promise<int>> promise(static_cast<Promise<int>*>(argument));
  promise->set(static_cast<int>(rbd_aio_get_return_value(completion)));
  rbd_aio_release(completion);
}

/// `submit(completion)` starts the call and returns its answer. The result is that answer, or the completion's. It
/// waits to the end.
template <class Submit>
task<int> completed(executor control, Clock& clock, Submit submit) {
  auto promise = std::make_unique<Promise<int>>(control, clock);
  const auto future = promise->future();
  rbd_completion_t completion = nullptr;
  if (const int r = rbd_aio_create_completion(promise.get(), &deliver, &completion); r < 0) co_return r;
  Promise<int>* given = promise.release();
  if (const int r = submit(completion); r < 0) {
    rbd_aio_release(completion);
    delete given;
    co_return r;
  }
  const auto answer = co_await future.get({}, "librbd");
  co_return answer ? *answer : -ECANCELED;
}

/// The same for librados.
template <class Submit>
task<int> completed_by_rados(executor control, Clock& clock, Submit submit) {
  auto promise = std::make_unique<Promise<int>>(control, clock);
  const auto future = promise->future();
  const auto deliver_it = [](rados_completion_t completion, void* argument) {
    const std::unique_ptr<Promise<int>> told(static_cast<Promise<int>*>(argument));
    told->set(rados_aio_get_return_value(completion));
    rados_aio_release(completion);
  };
  rados_completion_t completion = nullptr;
  if (const int r = rados_aio_create_completion2(promise.get(), deliver_it, &completion); r < 0) co_return r;
  Promise<int>* given = promise.release();
  if (const int r = submit(completion); r < 0) {
    rados_aio_release(completion);
    delete given;
    co_return r;
  }
  const auto answer = co_await future.get({}, "librados");
  co_return answer ? *answer : -ECANCELED;
}

}  // namespace corbd::rbd
