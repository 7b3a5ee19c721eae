#include "config.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>

#include "corbd/core/text.hpp"

namespace corbd::kms {
namespace {

namespace json = boost::json;

constexpr std::string_view kTypeKeys[] = {"encryptionKMSType", "KMS_PROVIDER"};

std::string type_of(const Section& section) {
  for (const auto key : kTypeKeys)
    if (const auto* type = section.if_contains(json::string_view(key.data(), key.size()));
        type != nullptr && type->is_string())
      return std::string(type->get_string());
  return {};
}

result<Found> served(const Section& section, const std::string& id) {
  const std::string name = type_of(section);
  if (name.empty())
    return Error{
        errc::failed_precondition,
        "KMS \"" + id + "\" has neither encryptionKMSType nor KMS_PROVIDER in the KMS config: add one of them"};
  const auto* type = kms_type(name);
  if (type == nullptr)
    return Error{errc::unimplemented, "KMS \"" + id + "\" has the type " + printable(name) +
                                          ", which is not supported: use " + known_types()};
  if (type->check != nullptr)
    if (auto checked = type->check(section, id); !checked) return checked.error();
  return Found{type, section};
}

result<json::object> parse_section(std::string_view text, const std::string& what) {
  boost::system::error_code failed;
  auto value = json::parse(json::string_view(text.data(), text.size()), failed);
  if (!failed && value.is_object()) return std::move(value.get_object());
  return Error{errc::failed_precondition, what + " is not a JSON object: correct it in the ConfigMap"};
}

Error no_such_kms(const std::string& id, const std::string& others) {
  return {errc::failed_precondition,
          "the KMS config has no \"" + id + "\"; it has: " + (others.empty() ? "nothing" : others)};
}

template <class Entries, class Name>
std::string names_of(const Entries& entries, Name name) {
  std::string all;
  for (const auto& entry : entries) all += (all.empty() ? "" : ", ") + printable(name(entry));
  return all;
}

/// Lists keys that neither the type nor its row in the table knows. ceph-csi ignores them, too.
std::string unknown_keys(const KmsType& type, const Section& section) {
  std::string all;
  for (const auto& entry : section) {
    const std::string_view key(entry.key().data(), entry.key().size());
    if (std::ranges::find(kTypeKeys, key) == std::end(kTypeKeys) &&
        std::ranges::find(type.keys, key) == type.keys.end())
      all += (all.empty() ? "" : ", ") + printable(key);
  }
  return all;
}

}  // namespace

Terms Found::terms() const {
  return {.kind = type->kind,
          .needs_passphrase = type->needs_passphrase != nullptr && type->needs_passphrase(section),
          .opens_files = type->kind != Kind::wrapped || type->passphrase != nullptr};
}

result<Found> find_kms(std::string_view config, std::string_view kms_id) {
  const auto all = parse_section(config, "the KMS config");
  if (!all) return all.error();
  const auto* section = all->if_contains(json::string_view(kms_id.data(), kms_id.size()));
  const std::string id = printable(kms_id);
  if (section != nullptr && section->is_object()) return served(section->get_object(), id);
  if (section != nullptr)
    return Error{errc::failed_precondition,
                 "KMS \"" + id + "\" in the KMS config is not a JSON object: correct it in the ConfigMap"};
  return no_such_kms(id, names_of(*all, [](const auto& entry) { return std::string_view(entry.key()); }));
}

result<Found> find_kms(const std::map<std::string, std::string>& data, const std::string& kms_id) {
  const auto entry = data.find(kms_id);
  const std::string id = printable(kms_id);
  if (entry == data.end()) return no_such_kms(id, names_of(data, [](const auto& one) { return one.first; }));
  const auto section = parse_section(entry->second, "KMS \"" + id + "\" in the KMS config");
  if (!section) return section.error();
  return served(*section, id);
}

result<Terms> terms_of(std::string_view config, std::string_view kms_id) {
  const auto found = find_kms(config, kms_id);
  if (!found) return found.error();
  return found->terms();
}

std::vector<Complaint> check_config(std::string_view config) {
  const auto all = parse_section(config, "the KMS config");
  if (!all) return {{"", false, all.error().text}};
  std::vector<Complaint> complaints;
  for (const auto& entry : *all) {
    const std::string id(entry.key());
    const auto found = find_kms(config, id);
    if (!found) {
      complaints.push_back({id, false, found.error().text});
      continue;
    }
    const auto unknown = unknown_keys(*found->type, found->section);
    if (!unknown.empty())
      complaints.push_back(
          {id, true, "KMS \"" + printable(id) + "\" has unknown settings, which have no effect: " + unknown});
  }
  return complaints;
}

}  // namespace corbd::kms
