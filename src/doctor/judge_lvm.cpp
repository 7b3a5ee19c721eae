// Judges whether the host's LVM looks into the devices of volumes. Pure.
#include <regex>

#include "corbd/core/text.hpp"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

/// Returns the text without comments: a "#" within quotes begins none.
std::string without_comments(std::string_view conf) {
  std::string text;
  bool quoted = false, comment = false;
  for (const char byte : conf) {
    if (byte == '\n') quoted = comment = false;
    if (byte == '"' && !comment) quoted = !quoted;
    if (byte == '#' && !quoted) comment = true;
    if (!comment) text += byte;
  }
  return text;
}

/// Returns the text behind the last "NAME =": the last setting counts. Empty: it is not set.
std::string_view setting(std::string_view conf, std::string_view name) {
  constexpr std::string_view blank = " \t\n{}/";
  std::string_view last;
  for (auto at = conf.find(name); at != conf.npos; at = conf.find(name, at + 1)) {
    const bool begins = at == 0 || blank.find(conf[at - 1]) != blank.npos;
    const auto sign = conf.find_first_not_of(" \t", at + name.size());
    if (begins && sign != conf.npos && conf[sign] == '=') last = conf.substr(sign + 1);
  }
  return last;
}

/// Returns the patterns of a list, or of a single string.
std::vector<std::string> patterns_of(std::string_view value) {
  const auto first = value.find_first_not_of(" \t\n");
  if (first == value.npos) return {};
  std::vector<std::string> patterns;
  std::string_view rest = value.substr(first);
  const bool list = rest.starts_with('[');
  for (;;) {
    const auto open = rest.find_first_of(list ? "\"]" : "\"\n");
    if (open == rest.npos || rest[open] != '"') return patterns;
    const auto close = rest.find('"', open + 1);
    if (close == rest.npos) return patterns;
    patterns.emplace_back(rest.substr(open + 1, close - open - 1));
    rest.remove_prefix(close + 1);
  }
}

/// Whether the filter lets LVM see the device: the first pattern that matches decides, and what none matches is seen
/// ("a|REGEX|" accepts, "r|REGEX|" rejects, with any delimiter).
bool lets_see(const std::vector<std::string>& patterns, const std::string& path) {
  for (const auto& pattern : patterns) {
    if (pattern.size() < 3) continue;
    const auto end = pattern.rfind(pattern[1]);
    try {
      const std::regex regex(pattern.substr(2, end < 2 ? pattern.npos : end - 2), std::regex::extended);
      if (std::regex_search(path, regex)) return pattern.front() == 'a';
    } catch (const std::regex_error&) {
      continue;  // LVM itself would refuse the configuration
    }
  }
  return true;
}

}  // namespace

LvmView view_of_lvm(std::string_view lvm_conf, const std::optional<std::string>& devices_file) {
  const std::string conf = without_comments(lvm_conf);
  const auto uses = setting(conf, "use_devicesfile");
  const auto digit = uses.find_first_not_of(" \t");
  LvmView view;
  // LVM ignores both filters then, and uses every device while there is no such file.
  const bool by_file = devices_file && digit != uses.npos && uses[digit] == '1';
  const auto global = patterns_of(setting(conf, "global_filter")), local = patterns_of(setting(conf, "filter"));
  for (const auto& row : device::kTraits) {
    const std::string kind(row.prefix), path = "/dev/" + kind + "0";
    const bool sees = by_file ? devices_file->find("/dev/" + kind) != std::string::npos
                              : lets_see(global, path) && lets_see(local, path);
    if (sees) view.scanned.push_back(kind);
    if (by_file)
      view.by = "the devices file";
    else if (!lets_see(global, path))
      view.by = "global_filter";
    else if (!sees)
      view.by = "filter";
  }
  return view;
}

Finding judge_lvm(const Inputs& inputs) {
  if (inputs.lvm->scanned.empty()) return ok("lvm", inputs.lvm->by + " keeps it from the devices of volumes");
  const std::string said = "the host's LVM looks into " + listed(inputs.lvm->scanned, " and ") +
                           " devices, and activates a volume group that it finds in a raw block volume";
  const std::string remedy =
      inputs.lvm->by == "the devices file"
          ? "take them out of LVM's devices file on the host (lvmdevices --deldev): docs/devices.md#lvm"
          : "set a global_filter in /etc/lvm/lvm.conf on the host: docs/devices.md#lvm";
  if (inputs.records.blocks.empty()) return ok("lvm", said + "; no volume here is raw block");
  return warning("lvm", said, remedy);
}

}  // namespace corbd::doctor
