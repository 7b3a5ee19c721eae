// Fencing: to keep the clients of whole addresses from a cluster, and to let them in again. What a request means, and
// what is to be done for it, is decided here without a cluster.
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

/// How long a fence lasts that names no time: five years, as ceph-csi's (docs/sources.md#fence-controller).
inline constexpr std::chrono::seconds kLasting{157784760};
/// Monitors that know no ranges take one command for each address.
inline constexpr std::uint64_t kMostAddresses = 65536;

/// Each once, also one inside another. invalid_argument names what is wrong with which of them, or that
/// there is none.
result<std::vector<AddressBlock>> read_blocks(const std::vector<std::string>& texts);
/// "90", "90s", "15m", "24h", "7d": at least a second, at most ten years.
result<std::chrono::seconds> read_duration(std::string_view text);

/// What is to be blocked: each block by an entry of its own. One that fences it already may be a wider one, which goes
/// when somebody unfences that. failed_precondition: a block has a client of this agent, which would end its own
/// volumes; `forced` allows it.
result<std::vector<BlocklistEntry>> to_block(const std::vector<AddressBlock>& blocks, const Blocklist& now,
                                             bool forced);
/// What is to be taken away: the block's own entry, or the single addresses that stand for it where monitors know no
/// ranges. Others' fences, and entries of single clients, stay: they fence the dead. A block without an entry of its
/// own needs nothing. failed_precondition: only some of its addresses are fenced, one by one.
result<std::vector<BlocklistEntry>> to_unblock(const std::vector<AddressBlock>& blocks, const Blocklist& now);
/// The other entries that keep the block, or a part of it, fenced.
std::vector<BlocklistEntry> remaining(const AddressBlock& block, const Blocklist& now,
                                      const std::vector<BlocklistEntry>& gone);
/// One entry for each address, for monitors that know no ranges. out_of_range above kMostAddresses.
result<std::vector<BlocklistEntry>> each_address(const AddressBlock& block);
/// Which of them are still to be blocked for that long. The first one just was, for the duration and its slack
/// (image::slack_of), so that a repeat within that time need not block again what the call before it did. Its end tells
/// the monitors' clock; one that was there ends earlier, and so do those that are left out then.
std::vector<BlocklistEntry> unblocked(std::vector<BlocklistEntry> each, const Blocklist& now,
                                      std::chrono::seconds duration);

/// The blocks that are fenced. Entries of single clients are none.
std::vector<AddressBlock> blocks_of(const Blocklist& now);

}  // namespace corbd::fence
