// A cluster's blocklist of refused clients. An entry names one client, every client of one address, or every client of
// a block of addresses (docs/sources.md#blocklist).
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"

namespace corbd::image {

/// A block of IPv4 or IPv6 addresses, in CIDR notation.
class AddressBlock {
 public:
  /// Parses a person's text: "10.0.0.0/24", "fd00::/64". invalid_argument says what is wrong and how to write it: no
  /// length, bits below the length, an IPv4 address in an IPv6 one, every address there is.
  static result<AddressBlock> parse(std::string_view text);
  /// Parses a cluster's text. Bits below the length are cleared. `length`: in bits.
  static result<AddressBlock> masked(std::string_view address, int length);
  /// Returns the one address of a client's host. Ceph prints the client's address as "10.0.0.1:0/123" or
  /// "[fd00::1]:0/123".
  static result<AddressBlock> host_of_client(std::string_view client);

  bool contains(const AddressBlock& other) const;
  bool single() const { return length_ == (v6_ ? 128 : 32); }
  /// Returns the number of addresses; more than 2^32 count as 2^32.
  std::uint64_t count() const;
  /// Returns the address with that number, from 0; below count().
  AddressBlock at(std::uint64_t number) const;
  std::string address() const;  ///< the first address, without the length
  std::string text() const;     ///< "10.0.0.0/24"
  auto operator<=>(const AddressBlock&) const = default;

 private:
  bool v6_ = false;
  std::array<std::uint8_t, 16> bytes_{};  ///< IPv4 uses the first four
  int length_ = 0;
};

struct BlocklistEntry {
  enum class Kind { client, host, range } kind = Kind::client;
  std::string client = {};      ///< "10.0.0.1:0/123"; only if it names one client
  AddressBlock addresses = {};  ///< for a client or a host: its one address
  std::chrono::system_clock::time_point until = {};
  std::string spelled = {};  ///< the monitors' spelling, by which they remove it; empty: same as text()
  /// Returns the text that Ceph's commands take: "10.0.0.1:0/123", "10.0.0.1", "10.0.0.0/24".
  std::string text() const;
  bool same_target(const BlocklistEntry& other) const { return kind == other.kind && text() == other.text(); }
};

/// Makes an entry for one client. invalid_argument: that is no client's address, or it stands for every client of its
/// host.
result<BlocklistEntry> entry_of_client(std::string client);
BlocklistEntry entry_of_range(const AddressBlock& addresses);
BlocklistEntry entry_of_host(const AddressBlock& address);

/// Exceeds the absence of any node whose writes could still arrive.
inline constexpr std::chrono::hours kLongestAway{7 * 24};
/// Time by which a fence may end earlier than asked, so that a call that is repeated later still succeeds.
std::chrono::seconds slack_of(std::chrono::seconds asked);
/// Whether an existing entry that ends in `left` is enough for a request of `asked`: it lasts as long, or kLongestAway
/// at least. Ceph keeps the end of an entry that exists (docs/sources.md#blocklist).
bool is_long_enough(std::chrono::seconds left, std::chrono::seconds asked);

struct Blocklist {
  std::string fsid;  ///< fsid of the cluster
  std::vector<BlocklistEntry> entries = {};
  std::vector<std::string> own = {};      ///< addresses of this agent's clients in that cluster
  std::vector<std::string> serving = {};  ///< those clients that have an image open

  /// Returns the entry that refuses this client; null if none does.
  const BlocklistEntry* find(std::string_view client) const;
};

/// This agent's clients of a cluster, and those of its predecessors on this node, as far as they may have written.
struct OwnClients {
  std::vector<std::string> known = {};       ///< addresses, including those of clients that have ended
  std::vector<std::string> left = {};        ///< those whose requests may still arrive
  std::vector<std::string> ended_well = {};  ///< those that need no entry in the blocklist
  /// Clients whose own entry in the blocklist ends too early. The agent adds its own when that has ended.
  std::vector<std::string> ending_early = {};
};

}  // namespace corbd::image
