#include "metadata.hpp"

#include "corbd/core/text.hpp"
#include "section.hpp"
#include "wrapped_key.hpp"

namespace corbd::kms::metadata {
namespace {

constexpr std::string_view kSecretName = kKeys[0], kSecretNamespace = kKeys[1], kPassphrase = "encryptionPassphrase";

struct Place {
  std::string name_space, name;
  std::string text() const { return "Secret " + printable(name_space) + "/" + printable(name); }
};

/// Returns the section's own Secret, which is in the claim's namespace unless the section says otherwise.
result<Place> secret_of(const KeyCall& ask) {
  auto name = needed_option(ask.section, kSecretName, ask.kms_id);
  if (!name) return name.error();
  auto name_space = text_option(ask.section, kSecretNamespace, ask.kms_id);
  if (!name_space) return name_space.error();
  Place place{name_space->value_or(ask.owner.tenant), std::move(*name)};
  if (!place.name_space.empty()) return place;
  return Error{errc::failed_precondition, "KMS \"" + printable(ask.kms_id) +
                                              "\" has no secretNamespace, and the namespace of the claim of volume " +
                                              printable(ask.owner.volume_id) +
                                              " is not known: add secretNamespace in the ConfigMap"};
}

}  // namespace

result<> check(const Section& section, const std::string& id) {
  for (const auto key : kKeys)
    if (auto read = text_option(section, key, id); !read) return read.error();
  return {};
}

bool needs_passphrase(const Section& section) { return !section.contains("secretName"); }

task<result<Secret>> passphrase(Transport& transport, KeyCall ask) {
  if (needs_passphrase(ask.section)) co_return ask.passphrase;
  const auto place = secret_of(ask);
  if (!place) co_return place.error();
  auto found = co_await transport.secret(place->name_space, place->name, ask.until);
  if (!found) co_return found.error();
  const auto entry = found->find(std::string(kPassphrase));
  if (entry == found->end() || entry->second.empty())
    co_return Error{errc::failed_precondition, place->text() + " has no " + std::string(kPassphrase) + ": add it"};
  co_return entry->second;
}

task<result<Secret>> unwrap(Transport& transport, KeyCall ask, std::string wrapped) {
  auto with = co_await passphrase(transport, ask);
  if (!with) co_return with.error();
  auto work = [volume = ask.owner.volume_id, wrapped = std::move(wrapped), with = std::move(*with)] {
    return unwrap_key(volume, wrapped, with);
  };
  co_return co_await transport.compute("deriving a key", std::move(work), ask.until);
}

task<result<std::string>> wrap(Transport& transport, KeyCall ask, Secret key) {
  auto with = co_await passphrase(transport, ask);
  if (!with) co_return with.error();
  auto work = [volume = ask.owner.volume_id, key = std::move(key), with = std::move(*with)]() -> result<Secret> {
    auto wrapped = wrap_key(volume, key, with);
    if (!wrapped) return wrapped.error();
    return Secret(std::move(*wrapped));
  };
  const auto wrapped = co_await transport.compute("deriving a key", std::move(work), ask.until);
  if (!wrapped) co_return wrapped.error();
  co_return std::string(wrapped->reveal());
}

}  // namespace corbd::kms::metadata
