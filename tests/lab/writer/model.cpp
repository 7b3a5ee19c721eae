#include "model.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace corbd::writer {
namespace {

constexpr Sector kNothing{};

/// librbd drops the parts of a discard that do not fill so much of an object: rbd_discard_granularity_bytes and
/// ImageDiscardRequest::prune_object_extents() in Ceph's src/librbd/io/ImageRequest.cc.
constexpr std::uint64_t kDiscardGranularity = 64 << 10;

bool same(const Sector& left, const Sector& right) { return std::memcmp(&left, &right, sector_size) == 0; }

Sector sector_of(std::uint64_t sector, Model::Content content) {
  Sector made{};
  if (content != Model::kZeroes) fill(made, sector, content);
  return made;
}

std::string named(Model::Content content) {
  return content == Model::kZeroes ? "zeroes" : "write " + std::to_string(content);
}

std::string expected(Model::Content content) {
  const std::string text = named(content & ~Model::kOrZeroes);
  return content & Model::kOrZeroes ? text + " or zeroes" : text;
}

/// Of what a sector holds.
std::string held(const Sector& sector, std::uint64_t place) {
  if (same(sector, kNothing)) return "zeroes";
  if (!is_whole(sector, sector.block)) return "bytes that no write has made";
  std::string text = "write " + std::to_string(sector.seq);
  if (sector.block != place) text += " of offset " + std::to_string(sector.block * sector_size);
  return text;
}

std::string bytes_from(const Sector& sector, std::size_t from) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&sector);
  std::string text;
  for (std::size_t i = from; i < std::min(from + 16, sector_size); ++i) {
    std::array<char, 4> digits{};
    std::snprintf(digits.data(), digits.size(), " %02x", bytes[i]);
    text += digits.data();
  }
  return text;
}

std::string difference(std::uint64_t place, Model::Content content, const Sector& sector) {
  const Sector right = sector_of(place, content & ~Model::kOrZeroes);
  const auto* one = reinterpret_cast<const unsigned char*>(&right);
  const auto* other = reinterpret_cast<const unsigned char*>(&sector);
  const auto first = static_cast<std::size_t>(std::mismatch(one, one + sector_size, other).first - one);
  return "at " + std::to_string(place * sector_size + first) + ": expected " + expected(content) + ":" +
         bytes_from(right, first) + ", found " + held(sector, place) + ":" + bytes_from(sector, first);
}

}  // namespace

std::string Request::text() const {
  static constexpr std::array<const char*, 7> names{"read",       "write",      "discard", "zero",
                                                    "zero_range", "punch_hole", "sync"};
  return std::to_string(number) + " (" + names.at(static_cast<std::size_t>(kind)) + " of " + std::to_string(length) +
         " bytes at " + std::to_string(offset) + ")";
}

Layout::Place Layout::place(std::uint64_t offset) const {
  const std::uint64_t unit = offset / stripe_unit, stripe = unit / stripe_count;
  const std::uint64_t stripes_per_object = object_size / stripe_unit;
  return {stripe / stripes_per_object * stripe_count + unit % stripe_count,
          stripe % stripes_per_object * stripe_unit + offset % stripe_unit};
}

void fill(const Request& request, std::span<Sector> data) {
  for (std::uint64_t i = 0; i < request.length / sector_size; ++i)
    fill(data[i], request.offset / sector_size + i, request.number);
}

// --- Requests

Requests::Requests(std::uint64_t seed, std::uint64_t first, std::uint64_t size, const Layout& layout)
    : random_(seed), number_(first), size_(size), layout_(layout) {}

// The standard does not say how its distributions choose.
std::uint64_t Requests::below(std::uint64_t limit) { return random_() % limit; }

Kind Requests::kind() {
  using enum Kind;
  static constexpr std::array<std::pair<Kind, std::uint64_t>, 7> weights{
      {{read, 30}, {write, 40}, {discard, 14}, {zero, 5}, {zero_range, 3}, {punch_hole, 5}, {sync, 3}}};
  std::uint64_t chosen = below(100);
  for (const auto& [one, weight] : weights) {
    if (chosen < weight) return one;
    chosen -= weight;
  }
  return read;
}

std::uint64_t Requests::length() {
  // As many of each power of two, because limits lie at each of them. Few are long: those take the most time.
  const std::uint64_t most = below(10) == 0 ? longest : 256 << 10;
  const std::uint64_t power = sector_size << below(static_cast<std::uint64_t>(std::bit_width(most / sector_size)));
  std::uint64_t bytes = power;
  if (below(2) == 0) bytes += below(power / sector_size) * sector_size;
  return std::min({bytes, most, size_});
}

std::uint64_t Requests::offset(std::uint64_t length) {
  const std::uint64_t room = size_ - length;
  const auto within = [&](std::uint64_t at, std::uint64_t before) {
    return std::min(at - std::min(at, before), room) / sector_size * sector_size;
  };
  const std::uint64_t shift = below(2) == 0 ? 0 : below(17) * sector_size;
  switch (below(8)) {
    case 0:  // the image's end
      return within(size_, length + shift);
    case 1:  // begins at, or crosses, the border of a stripe's unit
      return within(below(size_ / layout_.stripe_unit + 1) * layout_.stripe_unit, below(2) == 0 ? 0 : shift);
    case 2:  // the same at the units of a discard
      return within(below(size_ / kDiscardGranularity + 1) * kDiscardGranularity, below(2) == 0 ? 0 : shift);
    case 3:
    case 4:
    case 5:
      if (!earlier_.empty()) {
        const Request& one = earlier_[below(earlier_.size())];
        if (below(4) == 0) return within(one.end() + shift, length);
        return within(one.offset + (below(2) == 0 ? one.length / 2 : 0), shift);
      }
      break;
    default:
      break;
  }
  return below(room / sector_size + 1) * sector_size;
}

Request Requests::next() {
  Request made{number_++, kind(), 0, 0};
  if (made.kind == Kind::sync) return made;
  made.length = length();
  made.offset = offset(made.length);
  // Most discards of random bytes would cover no unit.
  if (made.kind == Kind::discard && below(3) != 0) {
    const std::uint64_t end =
        std::min((made.end() + kDiscardGranularity - 1) / kDiscardGranularity * kDiscardGranularity, size_);
    made.offset = made.offset / kDiscardGranularity * kDiscardGranularity;
    made.length = std::min(end - made.offset, longest);
  }
  if (earlier_.size() < 16)
    earlier_.push_back(made);
  else
    earlier_[below(earlier_.size())] = made;
  return made;
}

// --- Model

std::string Model::ended(const Request& request, std::span<const Sector> data) {
  const auto first = sectors_.begin() + static_cast<std::ptrdiff_t>(request.offset / sector_size);
  const auto last = first + static_cast<std::ptrdiff_t>(request.length / sector_size);
  switch (request.kind) {
    case Kind::read:
      return check(request.offset, data.first(request.length / sector_size));
    case Kind::write:
      std::fill(first, last, request.number);
      break;
    case Kind::discard:
      discarded(request);
      break;
    case Kind::zero:
    case Kind::zero_range:
    case Kind::punch_hole:
      std::fill(first, last, kZeroes);
      break;
    case Kind::sync:
      break;
  }
  return {};
}

/// A unit of an object that the discard covers reads as zeroes. Any other sector keeps its content or does: the kernel
/// may have joined this discard with a neighbour.
void Model::discarded(const Request& request) {
  const std::uint64_t unit = std::min(kDiscardGranularity, layout_.object_size);
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::uint64_t>> units;
  for (std::uint64_t at = request.offset; at < request.end(); at += sector_size) {
    const auto [object, offset] = layout_.place(at);
    units[{object, offset / unit}].push_back(at / sector_size);
  }
  for (const auto& [place, covered] : units)
    for (const std::uint64_t sector : covered)
      if (covered.size() == unit / sector_size)
        sectors_[sector] = kZeroes;
      else if (sectors_[sector] != kZeroes)
        sectors_[sector] |= kOrZeroes;
}

std::string Model::check(std::uint64_t offset, std::span<const Sector> found) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::uint64_t place = offset / sector_size + i;
    Content& content = sectors_.at(place);
    const Content written = content & ~kOrZeroes;
    if (same(found[i], sector_of(place, written)))
      content = written;
    else if (content != written && same(found[i], kNothing))
      content = kZeroes;
    else
      return difference(place, content, found[i]);
  }
  return {};
}

}  // namespace corbd::writer
