// [failure:153]
// A ledger that any program may have written: what is recovered from it is in its bounds, or it is refused.
#include "outstanding.hpp"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "ledger.hpp"

/// The input lies over a sound ledger, from the head on: most of its bytes are the input of the stream.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd::nbd;
  std::vector<std::byte> memory(ledger::kBytes);
  ledger::Head head;
  head.magic = ledger::kMagic;
  head.version = ledger::kVersion;
  head.slots = ledger::kSlots;
  head.input = ledger::kInput;
  head.backend = ledger::hash("v");
  head.arena = 1;
  constexpr std::size_t begin = offsetof(ledger::Head, reader_seq);
  std::memcpy(memory.data(), &head, sizeof head);
  const std::size_t in_head = std::min(size, sizeof head - begin);
  std::memcpy(memory.data() + begin, data, in_head);
  std::memcpy(memory.data() + ledger::kHeadBytes, data + in_head, std::min(size - in_head, ledger::kSlotsBytes));
  constexpr std::uint64_t arena = 1 << 20;
  const Expected expected{0, "v", {1 << 20, false, 1 << 16}, {{1, arena}}};
  const auto recovered = recover_outstanding(memory, expected);
  if (!recovered) return 0;
  if (recovered->input.size() > ledger::kInput || recovered->slots.size() > ledger::kSlots) std::abort();
  for (std::size_t i = 0; i < recovered->slots.size(); ++i) {
    const Outstanding::Slot& slot = recovered->slots[i];
    if (slot.data_bytes() > 0 && (slot.buffer > arena || slot.data_bytes() > arena - slot.buffer)) std::abort();
    if (slot.sent > 0 && (i != 0 || !slot.answered || slot.sent >= slot.reply_size())) std::abort();
    if (slot.filling && (i + 1 != recovered->slots.size() || slot.arrived > slot.request.length)) std::abort();
  }
  return 0;
}
