#include "add_line.hpp"

#include <algorithm>

namespace corbd::krbd {
namespace {

constexpr std::size_t kMaxLine = 4095;  // a page, sysfs's limit of a write

std::vector<std::string_view> pieces(std::string_view text) {
  std::vector<std::string_view> all;
  for (std::size_t at = 0; at <= text.size();) {
    const auto end = std::min(text.find(',', at), text.size());
    all.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

/// Returns "6789" of "10.0.0.1:6789" and of "[fd00::1]:6789"; "" if there is none.
std::string_view port_of(std::string_view address) {
  const auto colon = address.rfind(':');
  if (colon == address.npos || (address.front() == '[' && address[colon - 1] != ']')) return {};
  return address.substr(colon + 1);
}

/// Returns the address in the form for the kernel; "" if it does not speak the protocol.
std::string address_of(std::string_view text, bool msgr2) {
  const bool v1 = text.starts_with("v1:"), v2 = text.starts_with("v2:");
  if (v1 || v2) text.remove_prefix(3);
  text = text.substr(0, text.find('/'));  // removes a nonce
  if (text.empty()) return {};
  const auto port = port_of(text);
  const bool only_old = v1 || (!v2 && port == "6789"), only_new = v2 || (!v1 && port == "3300");
  if ((msgr2 && only_old) || (!msgr2 && only_new)) return {};
  return std::string(text) + (port.empty() ? msgr2 ? ":3300" : ":6789" : "");
}

bool has_msgr2(std::string_view options) {
  bool found = false;
  for (const auto option : pieces(options))
    if (option.starts_with("ms_mode=")) found = option != "ms_mode=legacy";
  return found;
}

/// The kernel splits the line at blanks, and its options at commas.
bool fits(std::string_view text, std::string_view without) {
  return std::none_of(text.begin(), text.end(), [&](unsigned char c) {
    return c <= 0x20 || c == 0x7f || without.find(static_cast<char>(c)) != without.npos;
  });
}

}  // namespace

std::vector<std::string> each_monitor(const std::vector<std::string>& monitors) {
  std::vector<std::string> all;
  for (const std::string_view entry : monitors) {
    const bool several = entry.starts_with("[v") && entry.ends_with(']');
    for (const auto text : pieces(several ? entry.substr(1, entry.size() - 2) : entry)) all.emplace_back(text);
  }
  return all;
}

std::string with_ms_mode(std::string options, const std::vector<std::string>& monitors) {
  const auto all = pieces(options);
  const bool chosen = std::ranges::any_of(all, [](auto option) { return option.starts_with("ms_mode="); });
  if (chosen || kernel_monitors(monitors, false) || !kernel_monitors(monitors, true)) return options;
  return options + (options.empty() ? "" : ",") + "ms_mode=prefer-crc";
}

result<std::string> kernel_monitors(const std::vector<std::string>& monitors, bool msgr2) {
  std::string list;
  for (const auto& text : each_monitor(monitors)) {
    const std::string address = address_of(text, msgr2);
    if (!fits(address, ""))
      return Error{errc::invalid_argument, "config.json has a monitor with a blank in its address"};
    if (!address.empty()) list += (list.empty() ? "" : ",") + address;
  }
  if (!list.empty()) return list;
  return Error{errc::failed_precondition,
               msgr2 ? "mapOptions or rbd_default_map_options ask for msgr2 (ms_mode), but config.json has no msgr2 "
                       "monitor: add an address with port 3300"
                     : "mapOptions or rbd_default_map_options ask for msgr1 (ms_mode=legacy), but config.json has only "
                       "msgr2 monitors: add an address with port 6789, or remove the option"};
}

result<std::string> add_line(const AddLine& of) {
  if (!fits(of.user, ",="))
    return Error{errc::failed_precondition, "the kernel client takes no user with a blank or comma in its name"};
  if (!fits(of.name.ns, ","))
    return Error{errc::failed_precondition,
                 "the kernel client takes no namespace with a blank or comma in its name: use mounter rbd-nbd"};
  if (!fits(of.name.pool, "") || !fits(of.name.image, ""))
    return Error{
        errc::failed_precondition,
        "the kernel client cannot map an image with a blank in its name or its pool's name: use mounter rbd-nbd"};
  const auto monitors = kernel_monitors(of.monitors, has_msgr2(of.options));
  if (!monitors) return monitors.error();
  std::string line = *monitors + " name=" + of.user + ",key=" + of.key_name;
  if (!of.options.empty()) line += "," + of.options;
  if (of.read_only) line += ",read_only";
  if (!of.name.ns.empty()) line += ",_pool_ns=" + of.name.ns;
  line += " " + of.name.pool + " " + of.name.image + " -";
  if (line.size() > kMaxLine)
    return Error{errc::failed_precondition,
                 "the kernel client takes at most 4095 bytes of monitors, options and names: shorten mapOptions, or "
                 "use mounter rbd-nbd"};
  return line;
}

}  // namespace corbd::krbd
