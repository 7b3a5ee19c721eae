// Awaits the completions of librbd and librados.
#pragma once

#include <rbd/librbd.h>

#include <memory>

#include "corbd/core/wait.hpp"

namespace corbd::rbd {

/// Adapts a library's functions that make, read and free completions.
struct Librbd {
  static int make(void* argument, rbd_callback_t done, rbd_completion_t* into) {
    return rbd_aio_create_completion(argument, done, into);
  }
  static int answer(rbd_completion_t completion) { return static_cast<int>(rbd_aio_get_return_value(completion)); }
  static void free(rbd_completion_t completion) { rbd_aio_release(completion); }
};
struct Librados {
  static int make(void* argument, rados_callback_t done, rados_completion_t* into) {
    return rados_aio_create_completion2(argument, done, into);
  }
  static int answer(rados_completion_t completion) { return rados_aio_get_return_value(completion); }
  static void free(rados_completion_t completion) { rados_aio_release(completion); }
};

/// Runs on a thread of the library, which must not wait. So it only posts.
template <class Library>
void deliver(void* completion, void* argument) {
  const std::unique_ptr<Promise<int>> promise(static_cast<Promise<int>*>(argument));
  promise->set(Library::answer(completion));
  Library::free(completion);
}

/// `submit(completion)` starts the call and returns its answer. The result is that answer, or the completion's. It
/// waits to the end.
template <class Library, class Submit>
task<int> completed(executor control, Clock& clock, Submit submit) {
  auto promise = std::make_unique<Promise<int>>(control, clock);
  const auto future = promise->future();
  void* completion = nullptr;
  if (const int r = Library::make(promise.get(), &deliver<Library>, &completion); r < 0) co_return r;
  Promise<int>* given = promise.release();
  if (const int r = submit(completion); r < 0) {
    Library::free(completion);
    delete given;
    co_return r;
  }
  const auto answer = co_await future.get({}, "the cluster");
  co_return answer ? *answer : -ECANCELED;
}

}  // namespace corbd::rbd
