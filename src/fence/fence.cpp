#include "corbd/fence/fence.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>

#include "corbd/core/text.hpp"

namespace corbd::fence {
namespace {

using Kind = BlocklistEntry::Kind;
constexpr std::chrono::seconds kLongest = std::chrono::hours(24 * 3653);

Error wrong_duration(std::string_view text) {
  return {errc::invalid_argument,
          "\"" + printable(text) +
              "\" is not a duration of a fence: write seconds, or a number with s, m, h or d, as "
              "in 24h; from a second to ten years"};
}

std::int64_t seconds_of(char unit) {
  switch (unit) {
    case 's':
      return 1;
    case 'm':
      return 60;
    case 'h':
      return 3600;
    case 'd':
      return 86400;
    default:
      return 0;
  }
}

}  // namespace

result<std::vector<AddressBlock>> read_blocks(const std::vector<std::string>& texts) {
  if (texts.empty())
    return Error{errc::invalid_argument, "no block of addresses is given: name at least one, as in 10.0.0.7/32"};
  std::vector<AddressBlock> blocks;
  for (const auto& text : texts) {
    const auto block = AddressBlock::parse(trimmed(text));
    if (!block) return block.error();
    // A block inside another stays: unfencing the wider one does not let the inner one in.
    if (std::ranges::find(blocks, *block) == blocks.end()) blocks.push_back(*block);
  }
  return blocks;
}

result<std::chrono::seconds> read_duration(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const std::int64_t each = unit.empty() ? 1 : unit.size() == 1 ? seconds_of(unit.front()) : 0;
  if (failed != std::errc() || each == 0 || number < 1 || number > kLongest.count() / each) return wrong_duration(text);
  return std::chrono::seconds(number * each);
}

result<std::vector<BlocklistEntry>> to_block(const std::vector<AddressBlock>& blocks, const Blocklist& now,
                                             bool forced) {
  std::vector<BlocklistEntry> all;
  for (const auto& block : blocks) {
    for (const auto& client : now.own) {
      const auto host = AddressBlock::host_of_client(client);
      if (!forced && host && block.contains(*host))
        return Error{errc::failed_precondition, "block " + block.text() + " has a Ceph client of this very agent, " +
                                                    client + ": fence it from another node. Nothing was fenced"};
    }
    all.push_back(image::entry_of_range(block));
  }
  return all;
}

namespace {

/// Returns the block's range. Monitors without ranges have a single entry for each of its addresses instead; fewer
/// entries are somebody else's fences.
std::vector<BlocklistEntry> entries_of(const AddressBlock& block, const Blocklist& now) {
  std::vector<BlocklistEntry> ranges, hosts;
  for (const auto& entry : now.entries) {
    if (entry.kind == Kind::range && entry.addresses == block) ranges.push_back(entry);
    if (entry.kind == Kind::host && block.contains(entry.addresses)) hosts.push_back(entry);
  }
  if (block.single()) ranges.insert(ranges.end(), hosts.begin(), hosts.end());
  if (!ranges.empty()) return ranges;
  return hosts.size() == block.count() ? hosts : ranges;
}

}  // namespace

std::vector<BlocklistEntry> remaining(const AddressBlock& block, const Blocklist& now,
                                      const std::vector<BlocklistEntry>& gone) {
  std::vector<BlocklistEntry> left;
  for (const auto& entry : now.entries) {
    const bool touches = entry.addresses.contains(block) || block.contains(entry.addresses);
    if (entry.kind == Kind::client || !touches) continue;
    if (std::ranges::none_of(gone, [&](const auto& one) { return one.same_target(entry); })) left.push_back(entry);
  }
  return left;
}

result<std::vector<BlocklistEntry>> to_unblock(const std::vector<AddressBlock>& blocks, const Blocklist& now) {
  std::vector<BlocklistEntry> gone;
  for (const auto& block : blocks) {
    auto own = entries_of(block, now);
    gone.insert(gone.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
  }
  for (const auto& block : blocks) {
    if (!entries_of(block, now).empty()) continue;
    for (const auto& entry : remaining(block, now, gone))
      if (entry.kind == Kind::host && block.contains(entry.addresses))
        return Error{errc::failed_precondition, "block " + block.text() + " has no fence of its own, but its address " +
                                                    entry.text() + " has one: unfence that. Nothing was unfenced"};
  }
  return gone;
}

result<std::vector<BlocklistEntry>> each_address(const AddressBlock& block) {
  if (block.count() > kMostAddresses)
    return Error{errc::out_of_range, "block " + block.text() + " has more than " + std::to_string(kMostAddresses) +
                                         " addresses, and the monitors of this Ceph know no ranges, so each address "
                                         "takes a command: fence smaller blocks, or upgrade Ceph"};
  std::vector<BlocklistEntry> all;
  for (std::uint64_t i = 0; i < block.count(); ++i) all.push_back(image::entry_of_host(block.at(i)));
  return all;
}

std::vector<BlocklistEntry> unblocked(std::vector<BlocklistEntry> each, const Blocklist& now,
                                      std::chrono::seconds duration) {
  const auto first = std::ranges::find_if(now.entries, [&](const auto& one) { return one.same_target(each.front()); });
  std::set<std::string> lasting;
  if (first != now.entries.end())
    for (const auto& entry : now.entries)
      if (entry.kind == Kind::host && entry.until >= first->until - image::slack_of(duration))
        lasting.insert(entry.text());
  std::erase_if(each, [&](const auto& entry) { return lasting.contains(entry.text()); });
  return each;
}

std::vector<AddressBlock> blocks_of(const Blocklist& now) {
  std::vector<AddressBlock> blocks;
  for (const auto& entry : now.entries)
    if (entry.kind != Kind::client && std::ranges::find(blocks, entry.addresses) == blocks.end())
      blocks.push_back(entry.addresses);
  std::ranges::sort(blocks);
  return blocks;
}

}  // namespace corbd::fence
