// The data path. Nothing here waits or copies. The caller gets librbd's answer unchanged; the nbd room judges what it
// means.
#include <cerrno>
#include <cstring>
#include <memory>

#include "image.hpp"

namespace corbd::rbd {
namespace {

struct Io {
  OpenImage* opened;
  image::Op* op;
  std::byte* into;     ///< a read's buffer
  std::size_t length;  ///< of a read
};

void finish(std::unique_ptr<Io> io, ssize_t r) {
  OpenImage* opened = io->opened;
  int answer = static_cast<int>(r);
  if (r >= 0) {
    const auto got = static_cast<std::size_t>(r);
    if (io->into != nullptr && got < io->length) std::memset(io->into + got, 0, io->length - got);
    answer = 0;
  } else {
    opened->connection.note(answer);
  }
  image::Op* op = io->op;
  io.reset();
  op->done(op, answer);
  // A close may continue from here.
  opened->leave();
}

void on_complete(rbd_completion_t completion, void* argument) {
  const ssize_t r = rbd_aio_get_return_value(completion);
  rbd_aio_release(completion);
  finish(std::unique_ptr<Io>(static_cast<Io*>(argument)), r);
}

template <class Submit>
void start(OpenImage& opened, image::Op& op, std::span<std::byte> into, Submit submit) {
  opened.enter();
  auto io = std::make_unique<Io>(Io{&opened, &op, into.data(), into.size()});
  rbd_completion_t completion = nullptr;
  if (const int r = rbd_aio_create_completion(io.get(), &on_complete, &completion); r < 0)
    return finish(std::move(io), r);
  Io* given = io.release();
  if (const int r = submit(opened.image, completion); r < 0) {
    rbd_aio_release(completion);
    finish(std::unique_ptr<Io>(given), r);
  }
}

}  // namespace

void Image::read(image::Op& op, std::uint64_t offset, std::span<std::byte> into) {
  start(*opened_, op, into, [=](rbd_image_t image, rbd_completion_t completion) {
    return rbd_aio_read(image, offset, into.size(), reinterpret_cast<char*>(into.data()), completion);
  });
}

void Image::write(image::Op& op, std::uint64_t offset, std::span<const std::byte> from) {
  start(*opened_, op, {}, [=](rbd_image_t image, rbd_completion_t completion) {
    return rbd_aio_write(image, offset, from.size(), reinterpret_cast<const char*>(from.data()), completion);
  });
}

void Image::flush(image::Op& op) {
  start(*opened_, op, {},
        [](rbd_image_t image, rbd_completion_t completion) { return rbd_aio_flush(image, completion); });
}

void Image::discard(image::Op& op, std::uint64_t offset, std::uint64_t length) {
  start(*opened_, op, {}, [=](rbd_image_t image, rbd_completion_t completion) {
    return rbd_aio_discard(image, offset, length, completion);
  });
}

void Image::write_zeroes(image::Op& op, std::uint64_t offset, std::uint64_t length) {
  start(*opened_, op, {}, [=](rbd_image_t image, rbd_completion_t completion) {
    return rbd_aio_write_zeroes(image, offset, length, completion, 0, 0);
  });
}

}  // namespace corbd::rbd
