#include "framer.hpp"

#include "ledger.hpp"

#include <algorithm>
#include <cstring>

namespace corbd::nbd {
namespace {

constexpr std::size_t kInput = ledger::kInput;  // room for some thirty 4 KiB writes in one read
// While large writes stream in, the input reads little beyond the current payload. Most of the next payload then goes
// straight to its buffer, without a copy.
constexpr std::size_t kInputWhenLarge = 4 << 10;
constexpr std::uint32_t kLarge = 32 << 10;

}  // namespace

Framer::Framer() : own_(std::make_unique_for_overwrite<std::byte[]>(kInput)), input_(own_.get(), kInput) {}

void Framer::resume(const Place& place, std::byte* payload) {
  begin_ = place.begin;
  end_ = place.end;
  payload_left_ = place.payload_left;
  skip_left_ = place.skip_left;
  payload_ = payload;
}

Framer::Framed Framer::next(const Limits& limits) {
  const auto here = [this](std::uint32_t wanted) { return std::min<std::size_t>(wanted, end_ - begin_); };
  if (skip_left_ > 0) {
    const std::size_t skipped = here(skip_left_);
    begin_ += skipped;
    skip_left_ -= static_cast<std::uint32_t>(skipped);
    if (skip_left_ > 0) return {};
  }
  if (payload_ != nullptr) {
    const std::size_t copied = here(payload_left_);
    std::memcpy(payload_, input_.data() + begin_, copied);
    begin_ += copied;
    payload_ += copied;
    payload_left_ -= static_cast<std::uint32_t>(copied);
    if (payload_left_ > 0) return {};
    payload_ = nullptr;
    return {Kind::filled, {}, 0};
  }
  if (end_ - begin_ < request_bytes) return {};
  return head(limits);
}

Framer::Framed Framer::head(const Limits& limits) {
  const auto request = parse_request(std::span<const std::byte, request_bytes>(input_.data() + begin_, request_bytes));
  begin_ += request_bytes;
  if (!request) return {Kind::broken, {}, 0};
  if (request->command == Command::disconnect) return {Kind::disconnect, *request, 0};
  large_ = request->has_payload() && request->length >= kLarge;
  const std::uint32_t error = check(*request, limits);
  if (request->has_payload()) (error == 0 ? payload_left_ : skip_left_) = request->length;
  return {error == 0 ? Kind::request : Kind::refused, *request, error};
}

std::size_t Framer::room(std::span<iovec, 2> into, bool this_message_only) {
  // The rest is a part of a header, or nothing. It stays in its place until its whole copy is elsewhere: a server that
  // resumes after a death looks for it in one of the two places.
  const std::size_t left = end_ - begin_;
  if (left <= begin_) {
    std::memcpy(input_.data(), input_.data() + begin_, left);
    begin_ = 0;
    end_ = left;
  }
  std::size_t parts = 0;
  if (payload_left_ > 0) into[parts++] = {payload_, payload_left_};
  std::size_t input = large_ && skip_left_ == 0 ? kInputWhenLarge : input_.size() - end_;
  if (this_message_only) {
    const std::size_t wanted = payload_left_ > 0 ? 0 : skip_left_ > 0 ? skip_left_ : request_bytes - left;
    input = std::min(input, wanted);
  }
  if (input > 0) into[parts++] = {input_.data() + end_, input};
  return parts;
}

void Framer::arrived(std::size_t bytes) {
  const std::size_t straight = std::min<std::size_t>(bytes, payload_left_);
  payload_ += straight;
  payload_left_ -= static_cast<std::uint32_t>(straight);
  end_ += bytes - straight;
}

}  // namespace corbd::nbd
