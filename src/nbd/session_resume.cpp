// Resumes in the middle of a stream, where the server in a dead process stopped, and prepares the same for a later
// process.
#include "corbd/core/expect.hpp"
#include "corbd/core/log.hpp"
#include "slot.hpp"

namespace corbd::nbd {

/// Do not touch the socket before the keeper has the new ledger instead of the old one: until then the old one is
/// right, and a death leaves everything as it was.
void Session::resume() {
  std::unique_ptr<InheritedSession> inherited = std::move(inherited_);
  const std::int64_t read_us = now_us();
  std::vector<Slot*> again;
  if (!reader_.take_over(*inherited, again) || !keep_instead_of(*inherited)) {
    for (Slot* slot : again) reader_.release(*slot);
    close_ledger(inherited->ledger.get());
    inherited_ = std::move(inherited);
    stop(State::closed, 0);
    return;
  }
  log::info("nbd.resumed", {{"volume", inherited->backend},
                            {"device", device::path(inherited->device)},
                            {"unanswered", inherited->owed.slots.size()},
                            {"submitted", again.size()}});
  for (Slot* slot : again) submit(*slot, read_us);
  // The input may contain whole requests.
  turn();
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

}  // namespace corbd::nbd
