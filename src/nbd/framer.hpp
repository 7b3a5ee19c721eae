// Splits the byte stream of a client into requests. It knows neither sockets nor images: bytes in, events out.
#pragma once

#include <sys/uio.h>

#include <memory>

#include "codec.hpp"

namespace corbd::nbd {

class Framer {
 public:
  enum class Kind : std::uint8_t {
    starved,     ///< no complete request is left: get more bytes
    request,     ///< for the image. A write's payload comes next: set its buffer with payload_into()
    filled,      ///< the payload of the last write is in its place
    refused,     ///< answer it with `error`; its payload is skipped, and the stream stays in step
    disconnect,  ///< the client leaves
    broken       ///< a violation of the protocol; the stream is lost
  };
  struct Framed {
    Kind kind = Kind::starved;
    Request request;
    std::uint32_t error = 0;
  };

  /// Bytes in the input and in the stream that are not parsed yet.
  struct Place {
    std::uint32_t begin = 0, end = 0, payload_left = 0, skip_left = 0;
  };

  Framer();
  /// `input` is not touched before its first use, so an idle device costs nothing.
  explicit Framer(std::span<std::byte> input) : input_(input) {}

  Framed next(const Limits& limits);
  /// Sets the buffer for the payload of the write that next() returned. Call it before the next next().
  void payload_into(std::byte* buffer) { payload_ = buffer; }

  /// Returns where the next bytes belong: the rest of a payload goes straight into its buffer, the bytes after it into
  /// the input. Call it only when starved. With `this_message_only` it takes no byte beyond the message that has begun.
  std::size_t room(std::span<iovec, 2> into, bool this_message_only);
  void arrived(std::size_t bytes);
  Place place() const {
    return {static_cast<std::uint32_t>(begin_), static_cast<std::uint32_t>(end_), payload_left_, skip_left_};
  }
  /// Resumes in the middle of a stream. `payload`: buffer for the rest of a payload; nullptr if none is coming.
  void resume(const Place& place, std::byte* payload);
  /// Whether it holds no byte of an unfinished message.
  bool at_boundary() const { return begin_ == end_ && payload_ == nullptr && payload_left_ == 0 && skip_left_ == 0; }

 private:
  Framed head(const Limits& limits);
  std::unique_ptr<std::byte[]> own_;
  std::span<std::byte> input_;
  std::size_t begin_ = 0, end_ = 0;
  std::byte* payload_ = nullptr;
  std::uint32_t payload_left_ = 0, skip_left_ = 0;
  bool large_ = false;  ///< the last request was a large write
};

}  // namespace corbd::nbd
