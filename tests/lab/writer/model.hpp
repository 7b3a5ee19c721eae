// The bytes that an image must hold, and random requests for it, in the manner of fsx. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "block.hpp"

namespace corbd::writer {

constexpr std::size_t sector_size = 512;
using Sector = Numbered<sector_size>;

/// zero, zero_range and punch_hole promise zeroes: BLKZEROOUT, and fallocate() with the flag of that name.
enum class Kind : std::uint8_t { read, write, discard, zero, zero_range, punch_hole, sync };

struct Request {
  std::uint64_t number = 0;  ///< another one for each request to an image, from 1 on
  Kind kind = Kind::read;
  std::uint64_t offset = 0, length = 0;  ///< bytes, whole sectors; 0 for sync

  std::uint64_t end() const { return offset + length; }
  bool touches(const Request& other) const { return offset < other.end() && other.offset < end(); }
  std::string text() const;
};
static_assert(sizeof(Request) == 32);  // an entry of the journal

/// Where an image's bytes lie in its objects.
struct Layout {
  std::uint64_t object_size = 4 << 20, stripe_unit = 4 << 20, stripe_count = 1;  ///< bytes, bytes, objects

  struct Place {
    std::uint64_t object, offset;
  };
  /// As in Ceph's osdc/Striper.cc.
  Place place(std::uint64_t offset) const;
};

/// Endless requests. Each is a function of the seed, the first number, the image's size and its layout. Many begin or
/// end where something else does: at an object, at the image's end, beside or inside an earlier request.
class Requests {
 public:
  static constexpr std::uint64_t longest = 6 << 20;

  Requests(std::uint64_t seed, std::uint64_t first, std::uint64_t size, const Layout& layout);
  Request next();

 private:
  std::uint64_t below(std::uint64_t limit);
  Kind kind();
  std::uint64_t length();
  std::uint64_t offset(std::uint64_t length);

  std::mt19937_64 random_;
  std::uint64_t number_, size_;
  Layout layout_;
  std::vector<Request> earlier_;  ///< few; new ones replace old ones
};

/// Writes the data of a write request.
void fill(const Request& request, std::span<Sector> data);

class Model {
 public:
  /// What a sector holds: the number of the write whose data it is, or zeroes.
  using Content = std::uint64_t;
  static constexpr Content kZeroes = 0;
  /// Beside a number: it may hold zeroes instead, until somebody has read it.
  static constexpr Content kOrZeroes = std::uint64_t{1} << 63;

  /// An entry for each sector of the image.
  Model(std::vector<Content> sectors, const Layout& layout) : sectors_(std::move(sectors)), layout_(layout) {}

  const std::vector<Content>& sectors() const { return sectors_; }
  std::uint64_t size() const { return sectors_.size() * sector_size; }

  /// After the success of a request. No other that touched it may have been under way. `data`: what a read found.
  /// Returns what is wrong with that, or nothing.
  std::string ended(const Request& request, std::span<const Sector> data);
  /// What is wrong with the sectors that lie at this offset, or nothing: the first difference, with its bytes. What
  /// was found of two possibilities is certain from then on.
  std::string check(std::uint64_t offset, std::span<const Sector> found);

 private:
  void discarded(const Request& request);

  std::vector<Content> sectors_;
  Layout layout_;
};

}  // namespace corbd::writer
