// Resumes in the middle of a stream, where the server in a dead process stopped, and prepares the same for a later
// process.
#include <cstring>

#include "corbd/core/expect.hpp"
#include "corbd/core/log.hpp"
#include "slot.hpp"

namespace corbd::nbd {

/// Do not touch the socket before the keeper has the new ledger instead of the old one: until then the old one is
/// right, and a death leaves everything as it was.
void Session::resume() {
  std::unique_ptr<InheritedSession> inherited = std::move(inherited_);
  read_us_ = now_us();
  std::vector<Slot*> again;
  if (!take_over(*inherited, again) || !keep_instead_of(*inherited)) {
    for (Slot* slot : again) release(*slot);
    close_ledger(inherited->ledger.get());
    inherited_ = std::move(inherited);
    stop(State::closed, 0);
    return;
  }
  log::info("nbd.resumed", {{"volume", inherited->backend},
                            {"device", device::path(inherited->device)},
                            {"unanswered", inherited->owed.slots.size()},
                            {"submitted", again.size()}});
  for (Slot* slot : again) submit(*slot);
  // The input may contain whole requests.
  turn();
}

/// Takes over all debts. `again`: requests for the image, perhaps for a second time, because nobody was told that they
/// are done. Returns false if something cannot be read: then nobody may resume.
bool Session::take_over(const InheritedSession& inherited, std::vector<Slot*>& again) {
  const Outstanding& owed = inherited.owed;
  Framer::Place place{0, static_cast<std::uint32_t>(owed.input.size()), 0, owed.skip_left};
  std::byte* payload = nullptr;
  if (!owed.input.empty()) std::memcpy(ledger_.input().data(), owed.input.data(), owed.input.size());
  for (const Outstanding::Slot& old : owed.slots) {
    Slot& slot = slots_.take(old.request);
    if (old.request.has_data() && old.request.length > 0 && (!old.answered || old.data_bytes() > 0)) {
      // The bytes were in the budget before, so the total hardly exceeds it.
      loop_.budget.resume(*this, Buffers::rounded(old.request.length));
      budget_used_ += Buffers::rounded(old.request.length);
      slot.buffer = loop_.buffers.take(old.request.length);
      if (!fetch(inherited, old, slot.buffer)) {
        release(slot);
        return false;
      }
    }
    ledger_.taken(slot.number, slot.request, loop_.offset(slot.buffer));
    if (old.answered) {
      writer_.resume(slot, old.error, old.sent);
    } else if (old.filling) {
      filling_ = &slot;
      place.payload_left = old.request.length - old.arrived;
      payload = slot.buffer + old.arrived;
    } else {
      again.push_back(&slot);
    }
  }
  framer_.resume(place, payload);
  publish_reader();
  return true;
}

bool Session::fetch(const InheritedSession& inherited, const Outstanding::Slot& old, std::byte* into) {
  const std::size_t bytes = old.data_bytes();
  const auto read = bytes > 0 ? inherited.arena->read(old.buffer, {into, bytes}) : result<>();
  if (!read) log_not_resumed(inherited.backend, inherited.device, read.error());
  return read.has_value();
}

bool Session::keep_instead_of(const InheritedSession& inherited) {
  // Without memory that outlives this process nothing new can be kept. Drop the old ledger all the same: a later
  // process would begin at its state.
  if (loop_.fd_store == nullptr || ledger_.file() < 0) return inherited.fd_store->drop(inherited.token).has_value();
  ledger_.belongs_to(inherited.device, inherited.backend, loop_.arena_token());
  const auto held = loop_.fd_store->hold({ledger_.token(), inherited.device, inherited.backend, inherited.token}, fd_,
                                         ledger_.file());
  if (!held) log::warning("nbd.link_not_stored", {{"volume", inherited.backend}, {"error", held.error().text}});
  kept_ = held.has_value();
  return kept_;
}

void Session::keep(std::uint32_t device, const std::string& backend) {
  expect(loop_.here(), "a session is used on its own io thread");
  if (loop_.fd_store == nullptr || ledger_.file() < 0 || kept_ || !serving()) return;
  ledger_.belongs_to(device, backend, loop_.arena_token());
  const auto held = loop_.fd_store->hold({ledger_.token(), device, backend, 0}, fd_, ledger_.file());
  if (!held)
    log::warning("nbd.link_not_stored", {{"volume", backend},
                                         {"error", held.error().text},
                                         {"effect", "if the agent dies, the kernel repeats this device's requests"}});
  kept_ = held.has_value();
}

/// Afterwards no other process can resume this stream.
bool Session::let_go() {
  if (kept_ && !loop_.fd_store->drop(ledger_.token())) return false;
  kept_ = false;
  return true;
}

void Session::publish_reader() {
  const Framer::Place place = framer_.place();
  ledger_.publish(ledger::Reader{place.begin, place.end, place.payload_left, place.skip_left,
                                 filling_ != nullptr ? filling_->number + 1u : 0u});
}

}  // namespace corbd::nbd
