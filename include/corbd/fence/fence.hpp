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

/// Each once, and none that another one contains. invalid_argument names what is wrong with which of them, or that
/// there is none.
result<std::vector<AddressBlock>> read_blocks(const std::vector<std::string>& texts);
/// "90", "90s", "15m", "24h", "7d": at least a second, at most ten years.
result<std::chrono::seconds> read_duration(std::string_view text);

/// What is to be blocked: the blocks that no entry covers for that long. failed_precondition: a block has a client of
/// this agent, which would end its own volumes; `forced` allows it.
result<std::vector<BlocklistEntry>> to_block(const std::vector<AddressBlock>& blocks, const Blocklist& now,
                                             std::chrono::system_clock::time_point until, bool forced);
/// What is to be taken away: the block's own entry, or the single addresses that stand for it where monitors know no
/// ranges. Others' fences of single addresses, and entries of single clients, stay: they fence the dead.
/// failed_precondition: a block has none of these, and other entries fence it or a part of it.
result<std::vector<BlocklistEntry>> to_unblock(const std::vector<AddressBlock>& blocks, const Blocklist& now);
/// The other entries that keep the block, or a part of it, fenced.
std::vector<BlocklistEntry> remaining(const AddressBlock& block, const Blocklist& now,
                                      const std::vector<BlocklistEntry>& gone);
/// One entry for each address, for monitors that know no ranges. out_of_range above kMostAddresses.
result<std::vector<BlocklistEntry>> each_address(const AddressBlock& block);

/// The blocks that are fenced. Entries of single clients are none.
std::vector<AddressBlock> blocks_of(const Blocklist& now);

}  // namespace corbd::fence
