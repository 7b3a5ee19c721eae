// Faults that are planted to see the search find them: in what the planner is shown, in what a step does, or in the
// cluster. Some only show together: each of two proofs covers for the other.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace corbd::search {

enum class Fault : std::uint8_t {
  // The planner is shown something else than there is.
  free_lock_is_proof,
  uid_is_not_compared,
  stamp_is_not_compared,
  late_lock_is_proof,
  // A step does something else.
  foreign_lock_is_own,
  fence_blocks_nobody,
  eviction_blocks_nobody,
  lock_skips_header,
  cut_off_client_serves,
  both_agents_answer,
  // The cluster or another client does something else. These are documented gaps.
  entries_end_early,
  writes_leave_no_stamp,
  visit_beside_the_lock
};

struct FaultRow {
  Fault fault;
  std::string_view name;
  std::string_view what;
};
inline constexpr std::array kFaults{
    FaultRow{Fault::free_lock_is_proof, "free_lock_is_proof", "a free lock counts as the agent's own"},
    FaultRow{Fault::uid_is_not_compared, "uid_is_not_compared", "any VolumeAttachment of this node counts"},
    FaultRow{Fault::stamp_is_not_compared, "stamp_is_not_compared", "the modify timestamp counts for nothing"},
    FaultRow{Fault::late_lock_is_proof, "late_lock_is_proof", "a lock proves the image ours whenever it came"},
    FaultRow{Fault::foreign_lock_is_own, "foreign_lock_is_own", "a foreign lock is broken without a fence"},
    FaultRow{Fault::fence_blocks_nobody, "fence_blocks_nobody", "dead clients are noted as fenced, and are not"},
    FaultRow{Fault::eviction_blocks_nobody, "eviction_blocks_nobody", "a stage breaks a lock without a fence"},
    FaultRow{Fault::lock_skips_header, "lock_skips_header", "the lock is taken whatever happened since the look"},
    FaultRow{Fault::cut_off_client_serves, "cut_off_client_serves", "an agent serves on by a client that was cut off"},
    FaultRow{Fault::both_agents_answer, "both_agents_answer", "a predecessor serves on after it gave its link away"},
    FaultRow{Fault::entries_end_early, "entries_end_early", "the blocklist forgets clients that may still write"},
    FaultRow{Fault::writes_leave_no_stamp, "writes_leave_no_stamp", "a rescue host's writes do not set the timestamp"},
    FaultRow{Fault::visit_beside_the_lock, "visit_beside_the_lock",
             "a rescue host writes and leaves between an agent's look at the header and its lock"},
};
static_assert(kFaults.size() == static_cast<std::size_t>(Fault::visit_beside_the_lock) + 1);

class Faults {
 public:
  constexpr Faults() = default;
  constexpr Faults(std::initializer_list<Fault> all) {
    for (const Fault fault : all) plant(fault);
  }
  constexpr void plant(Fault fault) { bits_ |= 1u << static_cast<unsigned>(fault); }
  constexpr bool has(Fault fault) const { return (bits_ >> static_cast<unsigned>(fault) & 1u) != 0; }

 private:
  std::uint32_t bits_ = 0;
};

constexpr std::optional<Fault> find_fault(std::string_view name) {
  for (const auto& row : kFaults)
    if (row.name == name) return row.fault;
  return std::nullopt;
}

}  // namespace corbd::search
