// A request of a session, from its header to the last byte of its reply. Slots are reused: a busy session allocates
// none.
#pragma once

#include "session.hpp"

namespace corbd::nbd {

struct Slot final : image::Op, Completion, Reply {
  Slot(Session& session, std::size_t place) : of(session) {
    number = static_cast<std::uint16_t>(place);
    done = &Slot::image_done;
    completed = &Slot::on_io_thread;
  }
  /// Called on any thread, perhaps inside the submitting call.
  static void image_done(image::Op* op, int with) noexcept {
    auto& slot = *static_cast<Slot*>(op);
    slot.result = with;
    if (with == 0 && !slot.tells_loss) slot.of.writer_.answer_alone(slot);
    slot.of.loop_.complete(slot);
  }
  static void on_io_thread(Completion& completion) noexcept {
    auto& slot = static_cast<Slot&>(completion);
    slot.of.finish(slot);
  }

  void reply(std::uint32_t error) {
    head = make_reply(request.cookie, error);
    data = buffer;
    data_bytes = request.command == Command::read && error == 0 ? request.length : 0;
  }

  Session& of;
  Slot* next = nullptr;                     ///< in the list of free slots
  Slot *older = nullptr, *newer = nullptr;  ///< used while the image has it
  std::int64_t began_us = 0;
  bool told_slow = false;
  bool tells_loss = false;  ///< answered with an error, whatever the image's result
  Request request;
  std::byte* buffer = nullptr;
  int result = 0;
  std::uint64_t piece_at = 0;     ///< for TRIM and WRITE_ZEROES: the piece that the image has,
  std::uint32_t piece_bytes = 0;  ///< its bytes,
  std::uint32_t piece_left = 0;   ///< and those after it
  std::size_t sent = 0;           ///< bytes of the reply that ReplyWriter::answer_alone() sent
};

}  // namespace corbd::nbd
