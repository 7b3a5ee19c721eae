// Port to the blocks of one image: all that whoever serves a device sees of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "corbd/image/values.hpp"

namespace corbd::image {

/// One request's place in the image port. The submitter owns it and keeps it alive until `done` ran. `done` runs once,
/// on any thread, perhaps inside the submitting call. result: 0, or -errno.
struct Op {
  void (*done)(Op* op, int result) noexcept = nullptr;
  /// The image's own, while it has the operation: so that it needs no memory of its own for it.
  struct {
    void* image = nullptr;
    std::span<std::byte> into;
  } held = {};
};

/// The I/O calls may come from any one thread at a time, never block and complete in any order. Buffers live until
/// done. An acknowledged write is stored: no write-back cache is ever in between.
class BlockImage {
 public:
  virtual ~BlockImage() = default;

  virtual const Key& key() const = 0;
  virtual std::uint64_t size() const = 0;  ///< bytes, as of the last refresh
  virtual bool read_only() const = 0;
  /// Whether flush() has anything to do; asked for each flush of a device, on the thread of the I/O calls. false: every
  /// acknowledged write is stored, and no journal records flushes.
  virtual bool needs_flush() const { return true; }

  virtual void read(Op& op, std::uint64_t offset, std::span<std::byte> into) = 0;
  virtual void write(Op& op, std::uint64_t offset, std::span<const std::byte> from) = 0;
  virtual void flush(Op& op) = 0;
  virtual void discard(Op& op, std::uint64_t offset, std::uint64_t length) = 0;
  virtual void write_zeroes(Op& op, std::uint64_t offset, std::uint64_t length) = 0;
};

}  // namespace corbd::image
