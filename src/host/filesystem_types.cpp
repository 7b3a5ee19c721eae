#include "filesystem_types.hpp"

#include <algorithm>
#include <array>
#include <boost/algorithm/string/join.hpp>
#include <cerrno>

#include "corbd/core/text.hpp"
#include "flags.hpp"

namespace corbd::host {
namespace {

/// In the order in which texts list them.
constexpr std::array kTypes{&kExt4, &kXfs, &kExt3, &kBtrfs, &kExt2};

}  // namespace

const FilesystemType* filesystem_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &FilesystemType::name);
  return found == kTypes.end() ? nullptr : *found;
}

std::optional<Error> mount_refusal(std::string_view fstype, const std::string& device, int error) {
  const auto* type = filesystem_type(fstype);
  if (error != EEXIST || type == nullptr || type->twice.empty()) return std::nullopt;
  return Error{errc::failed_precondition, "mounting " + device + ": " + std::string(type->twice)};
}

namespace {

bool names_device(const MountOption& option) {
  const auto is_named = [&](const FilesystemType* type) {
    return std::ranges::find(type->device_options, option.key) != type->device_options.end();
  };
  const auto is_inner = [&](const FilesystemType* type) { return type->inner_option == option.key; };
  const bool path = option.value && option.value->find('/') != std::string::npos;
  return std::ranges::any_of(kTypes, is_named) || (path && std::ranges::none_of(kTypes, is_inner));
}

}  // namespace

result<> check_mount_options(const std::string& flags) {
  const auto parsed = parse_flags(flags);
  if (!parsed) return parsed.error();
  for (const auto& option : parsed->filesystem) {
    const std::string text = option.key + (option.value ? "=" + *option.value : "");
    if (names_device(option))
      return Error{errc::invalid_argument,
                   "mount option " + printable(text) + " names another file or device of the node: leave it out"};
    if (std::ranges::find(kTypes, text, &FilesystemType::panic_option) != kTypes.end())
      return Error{errc::invalid_argument,
                   "mount option " + text + " would stop the whole node at an error of this volume: leave it out"};
  }
  return {};
}

std::string way_to_repair(std::string_view fstype) {
  const auto* type = filesystem_type(fstype);
  const std::string how =
      type == nullptr ? "repair it by hand" : "run `" + std::string(type->repair) + "` on the image";
  return how + " (docs/runbook.md#a-damaged-filesystem)";
}

std::string repair_command(std::string_view fstype) {
  const auto* type = filesystem_type(fstype);
  return type == nullptr ? "" : std::string(type->repair);
}

std::string option_without_journal(std::string_view fstype) {
  const auto* type = filesystem_type(fstype);
  return type == nullptr ? "" : std::string(type->without_journal);
}

std::string known_filesystems() {
  std::string text;
  for (const auto* type : kTypes) text += (text.empty() ? "" : ", ") + std::string(type->name);
  return text;
}

bool encrypts_files(std::string_view fstype) {
  const auto* type = filesystem_type(fstype);
  return type != nullptr && !type->encryption_option.empty();
}

bool trims_in_pieces(std::string_view fstype) {
  const auto* type = filesystem_type(fstype);
  return type != nullptr && type->trims_in_pieces;
}

std::string encrypting_filesystems() {
  std::string text;
  for (const auto* type : kTypes)
    if (!type->encryption_option.empty()) text += (text.empty() ? "" : " or ") + std::string(type->name);
  return text;
}

result<std::map<std::string, std::string>> options_by_type(std::string_view text) {
  std::map<std::string, std::string> by_type;
  const auto offered = offered_filesystems();
  for (const auto part : pieces(text, ';')) {
    if (part.empty()) continue;
    const auto colon = part.find(':');
    const std::string type(part.substr(0, colon));
    if (std::ranges::find(offered, type) == offered.end())
      return Error{errc::invalid_argument, "filesystem type '" + printable(type) + "' is not supported: use one of " +
                                               boost::algorithm::join(offered, ", ")};
    if (colon == part.npos || colon + 1 == part.size())
      return Error{errc::invalid_argument, type + " has no options: write " + type + ":OPTIONS"};
    by_type[type] = part.substr(colon + 1);
  }
  return by_type;
}

std::vector<std::string> offered_filesystems() {
  std::vector<std::string> names;
  for (const auto* type : kTypes)
    if (type->offered) names.emplace_back(type->name);
  return names;
}

}  // namespace corbd::host
