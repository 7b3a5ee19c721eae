#include "corbd/plan/outcome.hpp"

#include <algorithm>

#include "corbd/cephcsi/parameters.hpp"
#include "corbd/host/values.hpp"
#include "paths.hpp"

namespace corbd::plan {
namespace {

constexpr duration kFirstPause = std::chrono::milliseconds(500), kLongestPause = std::chrono::seconds(5);

bool published_at(const std::optional<Record>& record, const std::string& target) {
  return record && std::ranges::find(record->publishes, target, &Publish::target) != record->publishes.end();
}

std::optional<Wish> undo_of(const Wish& wish, const std::optional<Record>& before, const std::optional<Record>& now) {
  if (!now) return std::nullopt;
  if (const auto* staged = std::get_if<Staged>(&wish))
    for (const auto& staging : now->stagings)
      if (staging.path == staged->path && !staging.complete) return Unstaged{staged->path};
  if (const auto* published = std::get_if<Published>(&wish))
    if (!published_at(before, published->target) && published_at(now, published->target))
      return Unpublished{published->target};
  return std::nullopt;
}

}  // namespace

bool must_be_durable(const Wish& wish) {
  return !std::holds_alternative<Healed>(wish) && !std::holds_alternative<Adopted>(wish) &&
         !std::holds_alternative<Authorized>(wish);
}

FailedWish after_failure(const Wish& wish, const std::optional<Record>& before, const std::optional<Record>& now,
                         Error error) {
  if (!final_for_caller(error.code)) return {std::move(error)};
  // A format has begun, and only this record allows repeating it.
  if (std::holds_alternative<Staged>(wish) && now && now->format)
    return {Error{errc::unavailable, std::move(error.text)}};
  return {std::move(error), undo_of(wish, before, now)};
}

Error undo_failed(const Error& error, const Error& undo) {
  return {errc::unavailable, error.text + "; undoing it failed: " + undo.text};
}

std::optional<duration> pause_before_retry(const Wish& wish, const result<>& outcome, const Facts& facts,
                                           unsigned tries) {
  const bool waits = std::holds_alternative<Staged>(wish) && !outcome && outcome.error().code == errc::in_use &&
                     (facts.holders || !facts.evicted.empty());
  if (!waits) return std::nullopt;
  duration pause = kFirstPause;
  for (unsigned before = 1; before < tries && pause < kLongestPause; ++before)
    pause = std::min(2 * pause, kLongestPause);
  return pause;
}

bool is_refusal(const Error& error) {
  return error.code == errc::unauthenticated || error.code == errc::permission_denied;
}

bool may_have_other_credential(const Wish& wish, bool has_record, const Facts& facts) {
  return has_record && facts.refused && !std::holds_alternative<Staged>(wish);
}

Error with_secret(Error refused, const StageSecret& secret, bool tried) {
  const std::string name = secret.name.empty() ? "its node-stage Secret" : secret.name;
  std::string& text = refused.text;
  if (!is_refusal(refused))
    text += secret.name.empty() && secret.why.empty() ? ". No API server knows its Secret"
                                                      : "; " + name + " cannot be asked for it: " + secret.why;
  else if (secret.name.empty() && secret.why.empty())
    text +=
        ". No API server knows its Secret: stage it again with a user and key that work, by its orchestrator, by "
        "`corbd mount --refresh-keys` on a host, or by `corbd csi stage`";
  else if (!secret.credential)
    text += "; " + name + " cannot be asked for others: " + secret.why;
  else if (tried)
    text += "; " + name + " has another user or key (user " + secret.credential->user +
            "), and the cluster refuses them too: give it those of `ceph auth get client." + secret.credential->user +
            "`";
  else
    text += "; " + name + " has this user and key too: correct it, or the user's key and rights in Ceph";
  return refused;
}

std::string left_for_next_stage(const Record& record, const Staged& wish) {
  const Staging* staging = staging_at(record, wish.path);
  if (staging == nullptr) return "";
  const Capability wanted = as_served(record, wish);
  const bool other_options = traits(record.device.kind).served ? record.source.serving != wish.source.serving
                                                               : record.source.kernel != wish.source.kernel;
  std::string text;
  if (staging->capability.mount_flags != wanted.mount_flags)
    text = "mount options \"" + wanted.mount_flags + "\" instead of \"" + staging->capability.mount_flags + "\"";
  if (other_options) text += std::string(text.empty() ? "" : ", and ") + "other mapOptions";
  if (!record.use.block && record.source.on_damage != wish.source.on_damage)
    text += std::string(text.empty() ? "" : ", and ") + "another " + cephcsi::kOnDamage;
  return text;
}

std::string command_for_damage(const std::string& volume_id) {
  return "To repair it, run `corbd fsck --repair " + volume_id +
         "` on this node while a pod waits for the volume: its next stage does it";
}

std::string way_out_of_damage(const Record& record) {
  const Source& source = record.source;
  const std::string fstype = record.stagings.empty() ? "" : record.stagings.front().capability.fstype;
  const std::string image = image::Name{source.pool, source.ns, source.image}.text();
  const std::string tool = host::repair_command(fstype);
  std::string way = "end the volume's pods, so that no node has the image, and ";
  if (tool.empty() || record.encrypts_device())
    way += "repair it" + (tool.empty() ? "" : ": map it, open its LUKS header, and run `" + tool + "` on the mapping");
  else
    way += "run `" + tool + " \"$(rbd-nbd map " + image + ")\"`, then `rbd-nbd unmap " + image + "`";
  return way + " (docs/runbook.md#a-damaged-filesystem)";
}

std::string text_of_damage(const Record& record, const std::string& damage) {
  const Source& source = record.source;
  const std::string fstype = record.stagings.empty() ? "" : record.stagings.front().capability.fstype;
  std::string text = "image " + image::Name{source.pool, source.ns, source.image}.text() + " of volume " +
                     record.volume_id + " holds a damaged " + (fstype.empty() ? "filesystem" : fstype) + ". ";
  if (record.damaged)
    text += "It is mounted read-only without a replay of its journal, for pods that mount the claim readOnly. ";
  else if (source.on_damage == OnDamage::read_only)
    text += "It is not mounted: only a volume that corbd serves over nbd is mounted read-only for its damage. ";
  else
    text += "Nothing was repaired, as the volume's " + std::string(cephcsi::kOnDamage) + " says. ";
  // The checker's words come last: an Event has room for the beginning of a text.
  return text + command_for_damage(record.volume_id) + ". Or " + way_out_of_damage(record) + ". " + damage;
}

bool tells_of_ownership(const Wish& wish, const result<>& outcome, const Facts& facts) {
  if (facts.ownership || facts.attachment) return true;
  if (std::holds_alternative<Frozen>(wish) || std::holds_alternative<Thawed>(wish)) return false;
  if (outcome) return !std::holds_alternative<Unpublished>(wish);
  return outcome.error().code != errc::unavailable || std::holds_alternative<Healed>(wish);
}

}  // namespace corbd::plan
