#include "volume_key.hpp"

#include <algorithm>

#include "bring_up.hpp"
#include "corbd/plan/combination.hpp"
#include "filesystem.hpp"
#include "krbd.hpp"
#include "luks.hpp"

namespace corbd::plan {
namespace {

std::string key_at_kms(const Situation& view) {
  return "the key of volume " + view.id + " at KMS " + view.record->encryption->kms_id();
}

/// Waits: another server of the KMS answered, which lags behind, or another client wrote.
Decision not_there_yet(const Situation& view) {
  return refuse(errc::unavailable,
                key_at_kms(view) +
                    " was stored a moment ago, and now the KMS shows another or none: nothing was wiped, "
                    "repeat it");
}

/// Makes the first key. For a KMS that takes whatever arrives last, only one first key is ever sent: the same again
/// while this agent has it. The image's metadata name the one that was sent.
std::optional<Decision> make_key(const Situation& view) {
  const auto& facts = view.seen.facts;
  if (auto step = open_beside(view)) return *step;
  if (!facts.first_key) return look(Fact::first_key);
  const auto& key = *facts.first_key;
  if (key.there && key.sent && !key.is_sent)
    return refuse(errc::failed_precondition,
                  key_at_kms(view) +
                      " is not the first key that was sent there, which may still arrive and replace it: "
                      "see docs/runbook.md#a-first-key-on-its-way");
  if (key.there) return std::nullopt;
  if (facts.encryption == kPrepared)
    return refuse(errc::failed_precondition,
                  key_at_kms(view) +
                      " is missing, and a provisioner had made it: check the KMS config, or restore the "
                      "key from a backup");
  if (facts.key_stored) return not_there_yet(view);
  if (key.sent && !key.at_hand)
    return refuse(errc::failed_precondition,
                  key_at_kms(view) +
                      " was sent by an agent that died before it was told of its arrival. It may still "
                      "arrive and replace any other: wait for it, or see "
                      "docs/runbook.md#a-first-key-on-its-way");
  return Step(step::MakeKey{});
}

/// Whether a format begins, including its record.
bool begins_format(const Decision& next) {
  const auto* step = std::get_if<Step>(&next);
  if (step == nullptr) return false;
  if (const auto* write = std::get_if<step::WriteRecord>(step)) return write->record.format.has_value();
  return std::holds_alternative<step::SetFormatMarker>(*step) || std::holds_alternative<step::LuksFormat>(*step) ||
         std::holds_alternative<step::Mkfs>(*step) || std::holds_alternative<step::FscryptMake>(*step);
}

Step remove_key(int slot) { return step::RemoveKey{slot}; }

/// Returns why the key cannot be rotated.
std::optional<Decision> not_rotated(const Situation& view) {
  const auto& record = view.record;
  if (!record) return refuse(errc::not_found, "volume " + view.id + " is not staged here");
  if (record->encrypts_files()) return refuse(error_of(not_served::kFilesRotated, "the files of volume " + view.id));
  const std::string volume = "volume " + view.id;
  if (!record->encrypts_device()) return refuse(error_of(not_served::kNoKey, volume));
  if (record->failed)
    return refuse(errc::failed_precondition,
                  volume + " was given up, so its key is not rotated: stage it as ReadWriteOnce first");
  // One filesystem is behind all stagings, so all are mounted for reading, or all for writing.
  const auto reads = [&](const Staging& staging) { return writes_nothing(view, staging.capability); };
  if (record->use.read_only || std::ranges::any_of(record->stagings, reads))
    return refuse(error_of(not_served::kReaderRotates, volume));
  if (record->use.shared) return refuse(error_of(not_served::kManyRotate, volume));
  if (luks_mapping(view) == nullptr)
    return refuse(errc::failed_precondition, "volume " + view.id + " is not open: stage it first");
  if (by_kernel(view)) return refuse(error_of(not_served::kKernelRotates, volume));
  if (!view.seen.connected || view.seen.link != Observation::Link::serving)
    return refuse(errc::unavailable,
                  "the device of volume " + view.id + " is not served by this agent now: repeat when it is healed");
  return std::nullopt;
}

/// Ends a rotation. The KMS has confirmed the new key. Earlier writes name an older version.
Decision end_rotation(const Situation& view, const Keys& keys) {
  if (!keys.first.opens)
    return refuse(errc::internal,
                  "the new key of volume " + view.id + " does not open it: its old one, in key slot 1, still does");
  if (keys.second.used) return remove_key(1);
  return Done{};
}

}  // namespace

Decision with_first_key(const Situation& view, Decision next) {
  if (!begins_format(next)) return next;
  if (auto first = make_key(view)) return *first;
  return next;
}

Decision rekey(const Situation& view) {
  if (auto refused = not_rotated(view)) return *refused;
  if (auto step = bring_up(view)) return *step;
  const auto& facts = view.seen.facts;
  if (!facts.keys) return look(Fact::keys);
  const Keys& keys = *facts.keys;
  if (!keys.writes.ordered)
    return refuse(errc::failed_precondition,
                  key_at_kms(view) +
                      " is not rotated: the KMS takes whatever write arrives last, so a late one could "
                      "replace a newer key. Use a KMS that counts versions, such as Vault's KV version 2");
  if (facts.key_stored && facts.key_stored->version != keys.writes.version) return not_there_yet(view);
  if (facts.key_stored && facts.key_stored->fresh) return end_rotation(view, keys);
  const auto &first = keys.first, &second = keys.second;
  if (!first.opens && !second.opens)
    return refuse(errc::unauthenticated, "the key that the KMS has of volume " + view.id +
                                             " opens neither key slot 0 nor 1: nothing was changed. See "
                                             "docs/runbook.md#a-key-that-opens-nothing");
  // Write first: a KMS that refuses to write must do so before the header changes. And a slot that does not open has
  // the old key of an earlier rotation, or its new one, which may be on its way.
  if (!facts.key_stored) return Step(step::ConfirmKey{});
  const bool leftover = (first.used && !first.opens) || (second.used && !second.opens);
  if (leftover) return remove_key(first.opens ? 1 : 0);
  if (!second.used) return Step(step::AddKey{});
  return first.used ? remove_key(0) : Step(step::NewKey{});
}

}  // namespace corbd::plan
