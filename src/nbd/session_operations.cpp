// A session's operations of the image, from a request's slot to its end.
#include <algorithm>
#include <cerrno>

#include "corbd/core/log.hpp"
#include "slot.hpp"

namespace corbd::nbd {
namespace {

// The kernel sends discards of 4 GiB, which are 1,024 objects of 4 MiB. librados blocks beyond objecter_inflight_ops
// (rbd/connect.cpp). In pieces, one after another, a discard takes 64 of them.
constexpr std::uint32_t kPiece = 256u << 20;

}  // namespace

/// `read_us`: when its request was read.
void Session::submit(Slot& slot, std::int64_t read_us) {
  counters_.add_request(static_cast<std::size_t>(slot.request.command));
  slots_.begin(slot, read_us);
  slow_.watch(read_us);
  slot.piece_left = slot.request.length;
  slot.piece_offset = slot.request.offset;
  slot.tells_loss = lost_cache_.concerns(slot.request);
  const Request& request = slot.request;
  switch (request.command) {
    case Command::read:
      return image_.read(slot, request.offset, {slot.buffer, request.length});
    // FUA needs nothing more: an acknowledged write is stored.
    case Command::write:
      return image_.write(slot, request.offset, {slot.buffer, request.length});
    case Command::flush:
      return image_.needs_flush() ? image_.flush(slot) : slot.done(&slot, 0);
    case Command::trim:
    case Command::write_zeroes:
      return submit_piece(slot);
    case Command::disconnect:
      break;
  }
}

void Session::submit_piece(Slot& slot) {
  const std::uint32_t piece = std::min(slot.piece_left, kPiece);
  const std::uint64_t offset = slot.piece_offset;
  slot.piece_offset += piece;
  slot.piece_left -= piece;
  if (slot.request.command == Command::trim) return image_.discard(slot, offset, piece);
  image_.write_zeroes(slot, offset, piece);
}

/// Starts the next piece of a request, if it has more.
bool Session::goes_on(Slot& slot) {
  if (!slot.request.in_pieces()) return false;
  const bool more = slot.piece_left > 0 && slot.result >= 0 && serving();
  if (more) submit_piece(slot);
  return more;
}

void Session::finish(Slot& slot) {
  if (goes_on(slot)) return;
  slots_.end(slot);
  loop_.at_batch_end(*this);
  const ErrorClass found = judge(slot.result);
  if (found.hold && serving()) {
    counters_.add(device::Count::links_held);
    const char* hint =
        "the kernel repeats the request on the next link; if the error persists, `corbd fail` gives the volume up";
    if (found.doubtful)
      log::error("nbd.doubtful", {{"image", image_.key().text()}, {"errno", -slot.result}, {"hint", hint}});
    else
      log::warning("nbd.held", {{"image", image_.key().text()}, {"errno", -slot.result}});
    stop(found.doubtful ? State::closed : State::held, -slot.result);
  }
  if (!serving()) return reader_.release(slot);
  const std::uint32_t error = found.error == 0 && slot.tells_loss ? tell_loss() : found.error;
  const std::int64_t took_us = loop_.batch_us() - slot.began_us;
  loop_.took(took_us);
  stats_.ended(slot.request, took_us, error != 0);
  slow_.ended(slot, took_us);
  if (slot.sent > 0) {
    if (writer_.answered_alone(slot)) reader_.release(slot);
    return;
  }
  if (found.error != 0) counters_.add(device::Count::image_errors);
  writer_.answer(slot, error);
}

/// Logs the loss once, and returns the error. The image has carried the request out; the error is about writes that
/// were acknowledged before this server came.
std::uint32_t Session::tell_loss() {
  if (!std::exchange(loss_told_, true))
    log::warning(
        "nbd.loss_told",
        {{"volume", name_},
         {"image", image_.key().text()},
         {"effect",
          "a flush was answered with an I/O error, because rbd-nbd died with writes that its cache had "
          "acknowledged and not stored. So is every flush until the volume is unstaged, or its loss accepted"}});
  return wire_eio;
}

}  // namespace corbd::nbd
