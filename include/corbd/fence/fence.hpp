// Fencing keeps the clients of whole addresses from a cluster, and lets them in again. These functions decide, without
// a cluster, what a request means and what it takes.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/image/blocklist.hpp"

namespace corbd::fence {

using image::AddressBlock;
using image::Blocklist;
using image::BlocklistEntry;

/// Duration of a fence whose request names none: five years, as in ceph-csi (docs/sources.md#fence-controller).
inline constexpr std::chrono::seconds kLasting{157784760};
/// Limit for monitors without ranges, which take one command for each address.
inline constexpr std::uint64_t kMostAddresses = 65536;

/// Parses the blocks and drops duplicates, but not a block inside another. invalid_argument names the faulty text, or
/// says that there is none.
result<std::vector<AddressBlock>> read_blocks(const std::vector<std::string>& texts);
/// Parses "90", "90s", "15m", "24h" or "7d": at least a second, at most ten years.
result<std::chrono::seconds> read_duration(std::string_view text);

/// Returns the blocks that need an entry: one of their own each. A wider entry may fence the block already, but ends
/// when somebody unfences that. failed_precondition: a block has a client of this agent, whose own volumes would end;
/// `forced` allows it.
result<std::vector<BlocklistEntry>> to_block(const std::vector<AddressBlock>& blocks, const Blocklist& now,
                                             bool forced);
/// Returns the entries to be removed: the block's own entry, or the single addresses that stand for it where monitors
/// know no ranges. Others' fences, and entries of single clients, stay: they fence the dead. A block without an entry
/// of its own needs nothing. failed_precondition: only some of its addresses are fenced, one by one.
result<std::vector<BlocklistEntry>> to_unblock(const std::vector<AddressBlock>& blocks, const Blocklist& now);
/// Returns the other entries that keep the block, or a part of it, fenced.
std::vector<BlocklistEntry> remaining(const AddressBlock& block, const Blocklist& now,
                                      const std::vector<BlocklistEntry>& gone);
/// Makes one entry for each address, for monitors that know no ranges. out_of_range above kMostAddresses.
result<std::vector<BlocklistEntry>> each_address(const AddressBlock& block);
/// Returns the entries that are still to be blocked for that long. The first one was blocked just now, for the duration
/// and its slack (image::slack_of), so a repeat within the slack need not block the rest again. Its end shows the
/// monitors' clock. If it existed before, it ends earlier, and so may the entries that are left out.
std::vector<BlocklistEntry> unblocked(std::vector<BlocklistEntry> each, const Blocklist& now,
                                      std::chrono::seconds duration);

/// Returns the fenced blocks. Entries of single clients are none.
std::vector<AddressBlock> blocks_of(const Blocklist& now);

}  // namespace corbd::fence
