// The data path. Nothing here waits, copies or allocates. The caller gets librbd's answer unchanged; the nbd room
// judges it.
#include <algorithm>
#include <cstring>

#include "image.hpp"

namespace corbd::rbd {
namespace {

void finish(image::Op& op, ssize_t r) {
  auto* opened = static_cast<OpenImage*>(op.held.image);
  int answer = static_cast<int>(r);
  if (r >= 0) {
    const auto rest = op.held.into.subspan(std::min(static_cast<std::size_t>(r), op.held.into.size()));
    if (!rest.empty()) std::memset(rest.data(), 0, rest.size());
    answer = 0;
  } else {
    opened->handle().connection.observe_result(answer);
  }
  op.done(&op, answer);
  // A close may continue from here.
  opened->leave();
}

void on_complete(rbd_completion_t completion, void* argument) {
  const ssize_t r = rbd_aio_get_return_value(completion);
  rbd_aio_release(completion);
  finish(*static_cast<image::Op*>(argument), r);
}

template <class Submit>
void start(OpenImage& opened, image::Op& op, std::span<std::byte> into, Submit submit) {
  opened.enter();
  op.held = {&opened, into};
  rbd_completion_t completion = nullptr;
  if (const int r = rbd_aio_create_completion(&op, &on_complete, &completion); r < 0) return finish(op, r);
  if (const int r = submit(opened.handle().image, completion); r < 0) {
    rbd_aio_release(completion);
    finish(op, r);
  }
}

}  // namespace

void RbdImage::read(image::Op& op, std::uint64_t offset, std::span<std::byte> into) {
  start(*opened_, op, into, [=](rbd_image_t image, rbd_completion_t completion) {
    return rbd_aio_read(image, offset, into.size(), reinterpret_cast<char*>(into.data()), completion);
  });
}

void RbdImage::write(image::Op& op, std::uint64_t offset, std::span<const std::byte> from) {
  start(*opened_, op, {}, [=](rbd_image_t image, rbd_completion_t completion) {
    return rbd_aio_write(image, offset, from.size(), reinterpret_cast<const char*>(from.data()), completion);
  });
}

void RbdImage::flush(image::Op& op) {
  start(*opened_, op, {},
        [](rbd_image_t image, rbd_completion_t completion) { return rbd_aio_flush(image, completion); });
}

void RbdImage::discard(image::Op& op, std::uint64_t offset, std::uint64_t length) {
  start(*opened_, op, {}, [=](rbd_image_t image, rbd_completion_t completion) {
    return rbd_aio_discard(image, offset, length, completion);
  });
}

void RbdImage::write_zeroes(image::Op& op, std::uint64_t offset, std::uint64_t length) {
  start(*opened_, op, {}, [=](rbd_image_t image, rbd_completion_t completion) {
    return rbd_aio_write_zeroes(image, offset, length, completion, 0, 0);
  });
}

}  // namespace corbd::rbd
