#include "blocklist_json.hpp"

#include <boost/json/stream_parser.hpp>
#include <charconv>
#include <cstring>
#include <ctime>

#include "address.hpp"
#include "corbd/core/text.hpp"
#include "corbd/core/utc.hpp"

namespace corbd::rbd {
namespace {

Error not_understood(std::string_view text) {
  return {errc::unavailable, "the monitors' blocklist has \"" + printable(text) + "\", which this agent does not know"};
}

/// Parses "2026-11-23T04:16:17.295187+0000"; before Ceph 15 "2026-11-23 04:16:17.295187". In the monitor's zone, whole
/// seconds.
std::optional<std::chrono::system_clock::time_point> parse_time(std::string text) {
  if (text.size() > 10 && text[10] == ' ') text[10] = 'T';
  std::tm parts{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  const auto at = utc_from(parts);
  if (!at) return std::nullopt;
  rest += std::strspn(rest, ".0123456789");
  if (*rest == '\0') return at;
  std::tm zone{};
  if (::strptime(rest, "%z", &zone) == nullptr) return std::nullopt;
  return *at - std::chrono::seconds(zone.tm_gmtoff);
}

/// Parses "10.0.0.0:0/24" and "[fd00::]:0/64", also with "cidr:" in front.
std::optional<image::BlocklistEntry> parse_range(std::string_view text) {
  if (text.starts_with("cidr:")) text.remove_prefix(5);
  const auto slash = text.rfind('/');
  if (slash == text.npos) return std::nullopt;
  int length = -1;
  const std::string_view digits = text.substr(slash + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), length);
  const auto host = image::AddressBlock::host_of_client(text.substr(0, slash));
  if (!host) return std::nullopt;
  const auto block = image::AddressBlock::masked(host->address(), length);
  if (!block) return std::nullopt;
  auto entry = image::entry_of_range(*block);
  // The monitors keep bits below the length, and find the entry only with them (seen on 16.2.15).
  entry.spelled = host->address() + "/" + std::to_string(length);
  return entry;
}

/// A port and nonce of 0 stand for every client of the address (OSDMap::is_blocklisted).
std::optional<image::BlocklistEntry> parse_client(std::string_view text) {
  const std::string bare = bare_address(text);
  const auto host = image::AddressBlock::host_of_client(bare);
  if (!host) return std::nullopt;
  if (bare.ends_with(":0/0")) return image::entry_of_host(*host);
  return image::BlocklistEntry{image::BlocklistEntry::Kind::client, bare, *host};
}

result<> read_blocklist_entry(const boost::json::value& value, std::vector<image::BlocklistEntry>& into) {
  const auto* object = value.if_object();
  const auto text_of = [&](const char* key) {
    const auto* found = object == nullptr ? nullptr : object->if_contains(key);
    return found != nullptr && found->is_string() ? std::optional<std::string>(found->get_string()) : std::nullopt;
  };
  const auto range = text_of("range"), client = text_of("addr"), until = text_of("until");
  std::optional<image::BlocklistEntry> entry;
  if (range) {
    entry = parse_range(*range);
  } else if (client) {
    entry = parse_client(*client);
  }
  const auto end = until ? parse_time(*until) : std::nullopt;
  if (!entry || !end) return not_understood(range ? *range : client ? *client : "an entry without an address");
  entry->until = *end;
  into.push_back(std::move(*entry));
  return {};
}

}  // namespace

std::optional<std::chrono::system_clock::time_point> end_in_answer(std::string_view text) {
  constexpr std::string_view before = " until ";
  const auto at = text.find(before);
  if (at == text.npos) return std::nullopt;
  text.remove_prefix(at + before.size());
  return parse_time(std::string(text.substr(0, text.find(" ("))));
}

// Clients and ranges are two arrays, one after the other, without anything between (seen on 16.2.15).
result<std::vector<image::BlocklistEntry>> parse_blocklist(std::string_view json, std::vector<std::string>* unknown) {
  std::vector<image::BlocklistEntry> entries;
  while (!(json = trimmed(json)).empty()) {
    boost::json::stream_parser parser;
    boost::system::error_code failed;
    const std::size_t read = parser.write_some(json.data(), json.size(), failed);
    if (!failed && !parser.done()) parser.finish(failed);
    if (failed) return not_understood(json);
    const auto value = parser.release();
    if (!value.is_array()) return not_understood(json);
    for (const auto& one : value.get_array())
      if (auto taken = read_blocklist_entry(one, entries); !taken) {
        if (unknown == nullptr) return taken.error();
        unknown->push_back(taken.error().text);
      }
    json.remove_prefix(read);
  }
  return entries;
}

}  // namespace corbd::rbd
