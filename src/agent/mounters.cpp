#include "mounters.hpp"

#include <algorithm>

#include "config.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"

namespace corbd::agent {
namespace {

constexpr std::size_t kMaxRules = 1 << 20;  // limit of a ConfigMap

result<cephcsi::MounterRules> read_rules(const std::string& path) {
  const auto text = read_file(path, kMaxRules);
  if (!text && text.error().code == errc::not_found) return cephcsi::MounterRules();
  if (!text) return Error{errc::unavailable, text.error().text};
  auto rules = cephcsi::parse_mounter_rules(*text);
  // The file may have changed at the next try, so the code is not final (rule 12).
  if (!rules)
    return Error{errc::unavailable,
                 path + ", which says which client serves which volume, is invalid: correct it: " + rules.error().text};
  return rules;
}

}  // namespace

/// The client of a volume is decided once it has a device, or a record of this boot.
bool Mounters::has_client(const std::string& volume_id) const {
  const auto has_it = [&](const volume::Unclaimed& device) { return device.volume_id == volume_id; };
  const auto status = volumes_.status(volume_id);
  return (status && status->health != volume::Health::absent) || std::ranges::any_of(volumes_.unclaimed(), has_it) ||
         std::ranges::any_of(volumes_.left_to_kernel(), has_it);
}

task<result<cephcsi::Mounters>> Mounters::of(std::string volume_id, cephcsi::Attributes attributes, Until until) {
  cephcsi::Mounters mounters{default_mounter(options_)};
  const std::string path = options_.config_dir + "/mounters.json";
  const auto rules = co_await files_.run([path] { return read_rules(path); }, until, "reading " + path);
  if (!rules && has_client(volume_id)) co_return mounters;
  if (!rules) co_return rules.error();
  auto of = cephcsi::mounter_case(volume_id, attributes);
  auto choice = cephcsi::choose_mounter(*rules, of);
  if (choice.ask_storage_class && !has_client(volume_id)) {
    auto storage_class = co_await kubernetes_.storage_class(volume_id, until);
    if (!storage_class)
      co_return Error{errc::unavailable,
                      path + " has a rule for a StorageClass, and that of volume " + volume_id +
                          " is not known: " + storage_class.error().text +
                          ". Wait for the API server, or write a rule by clusterID and pool before it"};
    of.storage_class = std::move(*storage_class);
    choice = cephcsi::choose_mounter(*rules, of);
  }
  if (choice.mounter)
    log::debug("volume.mounter_chosen", {{"volume", volume_id},
                                         {"mounter", *choice.mounter == cephcsi::Mounter::nbd ? "rbd-nbd" : "rbd"},
                                         {"file", path}});
  mounters.instead = choice.mounter;
  co_return mounters;
}

}  // namespace corbd::agent
