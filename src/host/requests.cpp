#include "requests.hpp"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <stdexcept>
#include <utility>

#include "corbd/core/base64.hpp"

namespace corbd::host {
namespace {

struct KindName {
  Probe::Kind kind;
  std::string_view name;
};
constexpr std::array kKinds{
    KindName{Probe::Kind::nothing, "nothing"},       KindName{Probe::Kind::filesystem, "filesystem"},
    KindName{Probe::Kind::partitions, "partitions"}, KindName{Probe::Kind::other, "other"},
    KindName{Probe::Kind::ambivalent, "ambivalent"},
};

struct FolderName {
  EncryptedFolder folder;
  std::string_view name;
};
constexpr std::array kFolders{
    FolderName{EncryptedFolder::none, "none"},
    FolderName{EncryptedFolder::plain, "plain"},
    FolderName{EncryptedFolder::locked, "locked"},
    FolderName{EncryptedFolder::unlocked, "unlocked"},
};

/// All fields must be there, or we believe nothing.
template <std::size_t N>
result<std::array<std::uint64_t, N>> numbers(const boost::json::object& reply,
                                             const std::array<std::string_view, N>& names) {
  std::array<std::uint64_t, N> found{};
  for (std::size_t i = 0; i < N; ++i) {
    const boost::json::value* value = reply.if_contains(names[i]);
    boost::system::error_code failed;
    if (value != nullptr) found[i] = value->to_number<std::uint64_t>(failed);
    if (value == nullptr || failed)
      return Error{errc::internal, "the helper's reply has no number '" + std::string(names[i]) + "'"};
  }
  return found;
}

constexpr std::array<std::string_view, 2> kExtent{"bytes", "block_bytes"};
constexpr std::array<std::string_view, 6> kUsage{"bytes",  "bytes_used",  "bytes_available",
                                                 "inodes", "inodes_used", "inodes_available"};

}  // namespace

boost::json::object extent_to_json(const Extent& extent) {
  return {{kExtent[0], extent.bytes}, {kExtent[1], extent.block_bytes}};
}

result<Extent> extent_from_json(const boost::json::object& reply) {
  const auto found = numbers(reply, kExtent);
  if (!found) return found.error();
  return Extent{(*found)[0], static_cast<std::uint32_t>((*found)[1])};
}

boost::json::object usage_to_json(const Usage& usage) {
  return {{kUsage[0], usage.bytes},  {kUsage[1], usage.bytes_used},  {kUsage[2], usage.bytes_available},
          {kUsage[3], usage.inodes}, {kUsage[4], usage.inodes_used}, {kUsage[5], usage.inodes_available}};
}

result<Usage> usage_from_json(const boost::json::object& reply) {
  const auto found = numbers(reply, kUsage);
  if (!found) return found.error();
  const auto& [bytes, used, available, inodes, inodes_used, inodes_available] = *found;
  return Usage{bytes, used, available, inodes, inodes_used, inodes_available};
}

boost::json::object kernel_needs_to_json(const KernelNeeds& needs) {
  return {{"fstype", needs.fstype}, {"beyond_running", needs.beyond_running}, {"beyond_oldest", needs.beyond_oldest}};
}

result<KernelNeeds> kernel_needs_from_json(const boost::json::object& reply) {
  KernelNeeds needs;
  for (auto& [name, text] : {std::pair<const char*, std::string&>{"fstype", needs.fstype},
                             {"beyond_running", needs.beyond_running},
                             {"beyond_oldest", needs.beyond_oldest}}) {
    const auto* value = reply.if_contains(name);
    if (value == nullptr || !value->is_string())
      return Error{errc::internal, "the helper's reply lacks the kernel features of the filesystem"};
    text = std::string(value->get_string());
  }
  return needs;
}

Secret in_base64(const Secret& secret) { return Secret(to_base64(secret.reveal())); }
Secret secret_from_json(const boost::json::object& request, std::string_view key) {
  auto bytes = from_base64(request.at(key).as_string());
  if (!bytes) throw std::invalid_argument("a secret in a helper's request is not base64");
  return Secret(std::move(*bytes));
}
boost::json::object probe_to_json(const Probe& probe) {
  const auto* known =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const KindName& k) { return k.kind == probe.kind; });
  return {{"kind", known->name}, {"type", probe.type}};
}

result<Probe> probe_from_json(const boost::json::object& reply) {
  const auto* kind = reply.if_contains("kind");
  const auto* type = reply.if_contains("type");
  if (kind != nullptr && kind->is_string() && type != nullptr && type->is_string())
    for (const auto& known : kKinds)
      if (known.name == std::string_view(kind->get_string())) return Probe{known.kind, std::string(type->get_string())};
  return Error{errc::internal, "the helper's reply to a probe is not understood"};
}

boost::json::object folder_to_json(EncryptedFolder folder) {
  return {{"folder", std::ranges::find(kFolders, folder, &FolderName::folder)->name}};
}

result<EncryptedFolder> folder_from_json(const boost::json::object& reply) {
  const auto* folder = reply.if_contains("folder");
  if (folder != nullptr && folder->is_string())
    for (const auto& known : kFolders)
      if (known.name == std::string_view(folder->get_string())) return known.folder;
  return Error{errc::internal, "the helper's reply about an encrypted folder is not understood"};
}

boost::json::object luks_header_to_json(const LuksHeader& header) {
  auto reply = probe_to_json(header.found);
  reply["key_slots"] = boost::json::array(header.key_slots.begin(), header.key_slots.end());
  reply["integrity"] = header.integrity;
  reply["memory_kib"] = header.memory_kib;
  return reply;
}

result<LuksHeader> luks_header_from_json(const boost::json::object& reply) {
  auto found = probe_from_json(reply);
  if (!found) return found.error();
  const auto* slots = reply.if_contains("key_slots");
  if (slots == nullptr || !slots->is_array()) return Error{errc::internal, "the helper's reply has no key slots"};
  const auto* integrity = reply.if_contains("integrity");
  if (integrity == nullptr || !integrity->is_bool())
    return Error{errc::internal, "the helper's reply does not tell the integrity of a LUKS header"};
  const auto* memory = reply.if_contains("memory_kib");
  boost::system::error_code failed;
  const auto kib = memory == nullptr ? 0 : memory->to_number<std::uint32_t>(failed);
  if (memory == nullptr || failed)
    return Error{errc::internal, "the helper's reply does not tell the memory that a LUKS header needs"};
  LuksHeader header{std::move(*found), {}, integrity->get_bool(), kib};
  for (const auto& slot : slots->get_array()) header.key_slots.push_back(static_cast<int>(slot.as_int64()));
  return header;
}

}  // namespace corbd::host
