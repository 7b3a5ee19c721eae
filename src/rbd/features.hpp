// The features of an image in its header. librbd knows only those of its last refresh. Pool threads.
#pragma once

#include <rados/librados.h>

#include <optional>
#include <string>
#include <string_view>

#include "corbd/image/features.hpp"

namespace corbd::rbd {

/// Parses a little-endian number of any length.
std::uint64_t little_endian(std::string_view bytes);

/// The answer of a method of the header's class (cls_rbd) in a read operation. It is set once that has ended.
struct HeaderAnswer {
  char* bytes = nullptr;
  std::size_t length = 0;
  int error = 0;
  HeaderAnswer() = default;
  HeaderAnswer(const HeaderAnswer&) = delete;
  HeaderAnswer& operator=(const HeaderAnswer&) = delete;
  ~HeaderAnswer() { rados_buffer_free(bytes); }
  void ask(rados_read_op_t operation, const char* method, std::string_view input = {});
  /// Does the same, and lets the operation go on if the method fails.
  void try_asking(rados_read_op_t operation, const char* method, std::string_view input = {});
  std::string_view text() const { return {bytes, length}; }
};

/// Encodes the head of an image as the number of a snapshot, which the methods take.
std::string encode_head();

/// Adds its questions to a read operation on the header.
class FeatureQuestion {
 public:
  explicit FeatureQuestion(rados_read_op_t operation);
  int error() const { return features_.error; }
  /// Nothing: the answer is not understood. An old cluster knows no features of operations, and so has none.
  std::optional<image::Features> read() const;

 private:
  HeaderAnswer features_, operations_;
};

}  // namespace corbd::rbd
