#include "corbd/image/blocklist.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "corbd/core/text.hpp"
#include "corbd/image/values.hpp"

namespace corbd::image {
namespace {

constexpr int kBits4 = 32, kBits6 = 128;

Error wrong(std::string_view text, const std::string& why) {
  return {errc::invalid_argument, "\"" + printable(text) + "\" is not a block of addresses: " + why};
}

bool is_mapped(const std::array<std::uint8_t, 16>& bytes) {
  return std::all_of(bytes.begin(), bytes.begin() + 10, [](auto byte) { return byte == 0; }) && bytes[10] == 0xff &&
         bytes[11] == 0xff;
}

std::string host_of_mapped(const std::array<std::uint8_t, 16>& bytes) {
  std::string text;
  for (std::size_t i = 12; i < 16; ++i) text += (text.empty() ? "" : ".") + std::to_string(bytes[i]);
  return text;
}

void clear_below(std::array<std::uint8_t, 16>& bytes, int length) {
  for (int bit = length; bit < kBits6; ++bit)
    bytes[static_cast<std::size_t>(bit / 8)] &= static_cast<std::uint8_t>(~(0x80U >> (bit % 8)));
}

template <class Number>
bool is_number(std::string_view text, Number& into) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), into);
  return failed == std::errc() && end == text.data() + text.size();
}

/// Ceph takes an address without port and nonce, or with a nonce of 0, for every client of the host. It keeps 32 bits
/// of a nonce.
bool names_one_client(std::string_view client) {
  const std::string_view rest = client.substr(host_of(client).size());
  const auto slash = rest.find('/');
  if (!rest.starts_with(':') || slash == rest.npos) return false;
  std::uint16_t port = 0;
  std::uint32_t nonce = 0;
  return is_number(rest.substr(1, slash - 1), port) && is_number(rest.substr(slash + 1), nonce) && nonce != 0;
}

}  // namespace

result<AddressBlock> AddressBlock::masked(std::string_view address, int length) {
  AddressBlock block;
  const std::string text(address);
  block.v6_ = text.find(':') != text.npos;
  if (::inet_pton(block.v6_ ? AF_INET6 : AF_INET, text.c_str(), block.bytes_.data()) != 1)
    return wrong(address, "it is not an IPv4 or IPv6 address");
  const int most = block.v6_ ? kBits6 : kBits4;
  if (length < 0 || length > most)
    return wrong(text + "/" + std::to_string(length), "the length goes from 0 to " + std::to_string(most));
  block.length_ = length;
  clear_below(block.bytes_, length);
  return block;
}

result<AddressBlock> AddressBlock::parse(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == text.npos) {
    const auto one = masked(text, text.find(':') == text.npos ? kBits4 : kBits6);
    if (!one) return one.error();
    return wrong(text, "for this one address write " + one->text());
  }
  int length = 0;
  const std::string_view digits = text.substr(slash + 1);
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (failed != std::errc() || end != digits.data() + digits.size() || digits.starts_with('-'))
    return wrong(text, "the part after the slash is not a length in bits");
  const std::string_view address = text.substr(0, slash);
  auto block = masked(address, length);
  if (!block) return block;
  if (block->v6_ && length >= 96 && is_mapped(block->bytes_))
    return wrong(text, "clients with an IPv4 address show it as IPv4: write " + host_of_mapped(block->bytes_) + "/" +
                           std::to_string(length - 96));
  if (length == 0) return wrong(text, "it is every address there is, so it would cut off every client of the cluster");
  const auto exact = masked(address, block->v6_ ? kBits6 : kBits4);
  if (exact->bytes_ != block->bytes_)
    return wrong(text, "the address has bits below the length: write " + block->text() + " for the block, or " +
                           exact->text() + " for the address");
  return block;
}

result<AddressBlock> AddressBlock::host_of_client(std::string_view client) {
  std::string_view host = host_of(client);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return masked(host, host.find(':') == host.npos ? kBits4 : kBits6);
}

bool AddressBlock::contains(const AddressBlock& other) const {
  if (v6_ != other.v6_ || length_ > other.length_) return false;
  auto cut = other.bytes_;
  clear_below(cut, length_);
  return cut == bytes_;
}

std::uint64_t AddressBlock::count() const {
  const int free = (v6_ ? kBits6 : kBits4) - length_;
  return std::uint64_t{1} << std::min(free, kBits4);
}

AddressBlock AddressBlock::at(std::uint64_t number) const {
  AddressBlock one = *this;
  one.length_ = v6_ ? kBits6 : kBits4;
  const std::size_t last = static_cast<std::size_t>(one.length_) / 8;
  for (std::size_t i = 0; i < 4; ++i) one.bytes_[last - 1 - i] |= static_cast<std::uint8_t>(number >> (8 * i));
  return one;
}

std::string AddressBlock::address() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(v6_ ? AF_INET6 : AF_INET, bytes_.data(), text.data(), text.size());
  return text.data();
}

std::string AddressBlock::text() const { return address() + "/" + std::to_string(length_); }

std::string BlocklistEntry::text() const {
  switch (kind) {
    case Kind::client:
      return client;
    case Kind::host:
      return addresses.address();
    case Kind::range:
      break;
  }
  return addresses.text();
}

result<BlocklistEntry> entry_of_client(std::string client) {
  auto host = AddressBlock::host_of_client(client);
  if (!host) return host.error();
  if (!names_one_client(client))
    return Error{errc::invalid_argument,
                 "\"" + printable(client) + "\" does not name one Ceph client: it has no port, or no nonce but 0"};
  // An entry for this address would cut nobody off.
  if (const std::string address = host->address(); address == "0.0.0.0" || address == "::")
    return Error{errc::invalid_argument, "\"" + printable(client) + "\" does not name a host"};
  return BlocklistEntry{BlocklistEntry::Kind::client, std::move(client), *host};
}

BlocklistEntry entry_of_range(const AddressBlock& addresses) { return {BlocklistEntry::Kind::range, "", addresses}; }
BlocklistEntry entry_of_host(const AddressBlock& address) { return {BlocklistEntry::Kind::host, "", address}; }

std::chrono::seconds slack_of(std::chrono::seconds asked) {
  return std::min<std::chrono::seconds>(asked / 2, std::chrono::hours(1));
}

bool is_long_enough(std::chrono::seconds left, std::chrono::seconds asked) {
  return left >= std::min<std::chrono::seconds>(asked, kLongestAway) - slack_of(asked);
}

const BlocklistEntry* Blocklist::find(std::string_view client) const {
  const auto host = AddressBlock::host_of_client(client);
  for (const auto& entry : entries) {
    const bool refuses =
        entry.kind == BlocklistEntry::Kind::client ? entry.client == client : host && entry.addresses.contains(*host);
    if (refuses) return &entry;
  }
  return nullptr;
}

}  // namespace corbd::image
