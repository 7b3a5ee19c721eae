#include "config.hpp"

#include <boost/json/parse.hpp>

#include "corbd/core/text.hpp"

namespace corbd::kms {
namespace {

namespace json = boost::json;

std::string type_of(const json::object& section) {
  for (const char* key : {"encryptionKMSType", "KMS_PROVIDER"})
    if (const auto* type = section.if_contains(key); type != nullptr && type->is_string())
      return std::string(type->get_string());
  return {};
}

result<Found> served(const json::object& section, const std::string& id) {
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

}  // namespace

result<Found> find_kms(std::string_view config, std::string_view kms_id) {
  boost::system::error_code failed;
  const auto value = json::parse(json::string_view(config.data(), config.size()), failed);
  if (failed || !value.is_object())
    return Error{errc::failed_precondition, "the KMS config is not a JSON object: correct it in the ConfigMap"};
  const auto& all = value.get_object();
  const auto* section = all.if_contains(json::string_view(kms_id.data(), kms_id.size()));
  const std::string id = printable(kms_id);
  if (section != nullptr && section->is_object()) return served(section->get_object(), id);
  if (section != nullptr)
    return Error{errc::failed_precondition,
                 "KMS \"" + id + "\" in the KMS config is not a JSON object: correct it in the ConfigMap"};
  std::string others;
  for (const auto& entry : all) others += (others.empty() ? "" : ", ") + printable(entry.key());
  return Error{errc::failed_precondition,
               "the KMS config has no \"" + id + "\"; it has: " + (others.empty() ? "nothing" : others)};
}

result<Kind> kind_of(std::string_view config, std::string_view kms_id) {
  const auto found = find_kms(config, kms_id);
  if (!found) return found.error();
  return found->type->kind;
}

}  // namespace corbd::kms
