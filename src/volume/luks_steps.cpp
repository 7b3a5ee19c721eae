#include "luks_steps.hpp"

#include <algorithm>

#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/text.hpp"

namespace corbd::volume {
namespace {

constexpr const char* kState = "rbd.csi.ceph.com/encrypted";  // image metadata, ceph-csi's
constexpr int kFirst = 0, kSecond = 1;                        // key slots of a rotation
constexpr std::chrono::hours kTagLimit{24};                   // for the format of a volume with integrity

host::LuksFormat format_of(const Volume& volume, const Wish& wish) {
  const auto& wanted = std::get<Staged>(wish).luks;
  return {wanted.cipher, wanted.key_bits, wanted.integrity, wanted.sector_bytes, mapping_name(volume.id)};
}

}  // namespace

task<result<DerivationTurn>> LuksSteps::key_derivation(const Volume& volume, std::uint32_t memory_kib) {
  if (memory_kib > host::kMaxKeyMemoryKib)
    co_return Error{errc::failed_precondition,
                    "a key of the LUKS header of volume " + volume.id + " needs " + std::to_string(memory_kib >> 10) +
                        " MiB, and corbd takes no more than " + std::to_string(host::kMaxKeyMemoryKib >> 10) +
                        ": lower its cost with `cryptsetup luksConvertKey --pbkdf-memory 32768`"};
  const bool costly = memory_kib > host::kKeyMemoryKib;
  auto& first = costly ? costly_derivations_
                       : key_derivations_of_
                             .try_emplace(volume.record->source.cluster_id, control_, clock_,
                                          "the cluster's turn to derive a LUKS key", kKeyDerivationsOfCluster)
                             .first->second;
  const std::size_t needed = costly ? kKeyDerivations : 1;
  if (first.free() == 0 || key_derivations_.free() < needed)
    log::info("luks.waits",
              {{"volume", volume.id},
               {"mebibytes", memory_kib >> 10},
               {"cause", "other volumes of this node are deriving their keys, and the memory for that is bounded"}});
  DerivationTurn turn;
  const auto until = long_deadline();
  auto one_of_first = co_await first.take(until);
  if (!one_of_first) co_return one_of_first.error();
  turn.add(std::move(*one_of_first));
  for (std::size_t i = 0; i < needed; ++i) {
    auto one = co_await key_derivations_.take(until);
    if (!one) co_return one.error();
    turn.add(std::move(*one));
  }
  co_return turn;
}

task<result<DerivationTurn>> LuksSteps::turn_to_try(const Volume& volume) {
  const auto& header = volume.facts.luks;
  co_return co_await key_derivation(volume, header ? header->memory_kib : host::kKeyMemoryKib);
}

/// Takes the turn for a format. With integrity a format writes the whole device before it derives its key. No other
/// volume waits for its turn to derive, and none of another cluster for the format.
task<result<DerivationTurn>> LuksSteps::turn_to_format(const Volume& volume, host::LuksFormat how) {
  if (how.integrity.empty()) co_return co_await key_derivation(volume);
  const auto device = device_of(volume);
  if (!device) co_return device.error();
  const std::string& cluster = volume.record->source.cluster_id;
  auto& formats =
      formats_.try_emplace(cluster, control_, clock_, "the turn to format a volume with integrity", 1).first->second;
  if (formats.free() == 0)
    log::info("luks.waits", {{"volume", volume.id},
                             {"cause", "another volume of cluster " + cluster +
                                           " with integrityMode is being formatted on this node"}});
  auto one = co_await formats.take(long_deadline());
  if (!one) co_return one.error();
  log::info("luks.writes_tags",
            {{"volume", volume.id},
             {"device", device::path(*device)},
             {"bytes", device->size},
             {"cause", "integrityMode needs every sector written once: the first stage lasts until then"}});
  DerivationTurn turn;
  turn.add(std::move(*one));
  co_return turn;
}

task<result<>> LuksSteps::look(Volume& volume, Fact fact, const Wish& wish) {
  if (fact == Fact::keys) co_return co_await look_at_keys(volume, wish);
  if (fact == Fact::encryption) {
    const auto found = co_await keys_.kept_metadata(volume, kState);
    if (!found) co_return found.error();
    volume.facts.encryption = trimmed(found->value_or(""));
    co_return result<>();
  }
  const auto device = device_path(volume);
  if (!device) co_return device.error();
  auto header = co_await ports_.luks.look(*device, owner(volume), while_served(volume, deadline()));
  if (!header) co_return header.error();
  volume.facts.luks = std::move(*header);
  co_return result<>();
}

task<result<>> LuksSteps::look_at_keys(Volume& volume, const Wish& wish) {
  const auto terms = co_await ports_.kms.terms(volume.record->encryption->kms_id(), deadline());
  if (!terms) co_return terms.error();
  if (terms->kind == kms::Kind::shared)
    co_return Error{errc::unimplemented, "the KMS of volume " + volume.id +
                                             " has one passphrase for all volumes, so there is no key to rotate"};
  const auto device = device_path(volume);
  if (!device) co_return device.error();
  const auto found = co_await keys_.find(volume, wish);
  if (!found) co_return found.error();
  if (!found->key) co_return no_key(volume);
  const auto header = co_await ports_.luks.look(*device, owner(volume), while_served(volume, deadline()));
  if (!header) co_return header.error();
  volume.facts.luks = *header;
  plan::Keys keys;
  keys.writes = found->writes;
  for (const int slot : {kFirst, kSecond}) {
    auto& one = slot == kFirst ? keys.first : keys.second;
    one.used = std::ranges::find(header->key_slots, slot) != header->key_slots.end();
    if (!one.used) continue;
    const auto turn = co_await turn_to_try(volume);
    if (!turn) co_return turn.error();
    const auto opens =
        co_await ports_.luks.opens(*device, slot, *found->key, owner(volume), while_served(volume, long_deadline()));
    if (!opens) co_return opens.error();
    one.opens = *opens;
  }
  volume.facts.keys = keys;
  co_return result<>();
}

task<result<>> LuksSteps::format(Volume& volume, const Wish& wish) {
  const auto device = device_path(volume);
  if (!device) co_return device.error();
  auto key = co_await keys_.key(volume, wish);
  if (!key) co_return key.error();
  const auto how = format_of(volume, wish);
  const auto turn = co_await turn_to_format(volume, how);
  if (!turn) co_return turn.error();
  const Until until = how.integrity.empty() ? long_deadline() : Until{clock_.now() + kTagLimit};
  auto made = co_await ports_.luks.format(*device, how, std::move(*key), owner(volume), while_served(volume, until));
  if (!made) co_return made;
  log::info("luks.made", {{"volume", volume.id},
                          {"device", *device},
                          {"cipher", how.cipher},
                          {"key_bits", how.key_bits},
                          {"integrity", how.integrity}});
  volume.facts.luks.reset();
  co_return result<>();
}

task<result<>> LuksSteps::note(Volume& volume) {
  auto noted = co_await volume.server.image()->set_metadata(kState, kEncrypted, deadline());
  if (noted) volume.facts.encryption = kEncrypted;
  if (!traits(volume.record->device.kind).served)
    volume.facts.ownership.reset();  // the note raised the header's version
  co_return noted;
}

task<result<>> LuksSteps::open(Volume& volume, const Wish& wish) {
  const auto device = device_path(volume);
  if (!device) co_return device.error();
  auto key = co_await keys_.key(volume, wish);
  if (!key) co_return key.error();
  const auto turn = co_await turn_to_try(volume);
  if (!turn) co_return turn.error();
  const host::LuksOpening how{volume.record->reads_only(), std::get<Staged>(wish).luks.discard};
  auto opened = co_await ports_.luks.open(*device, mapping_name(volume.id), std::move(*key), how, owner(volume),
                                          while_served(volume, long_deadline()));
  if (!opened) co_return opened;
  log::info("luks.opened", {{"volume", volume.id}, {"device", *device}, {"discard", how.discard}});
  volume.facts.fits = true;
  co_return result<>();
}

task<result<>> LuksSteps::resize(Volume& volume) {
  auto resized = co_await ports_.luks.resize(mapping_name(volume.id), owner(volume), while_served(volume, deadline()));
  if (resized) volume.facts.fits = true;
  co_return resized;
}

task<result<>> LuksSteps::close(Volume& volume) {
  const auto device = device_of(volume);
  if (!device) co_return device.error();
  const auto* top = top_mapping(*device, volume.id);
  const std::string mapping = top == nullptr ? mapping_name(volume.id) : top->mapping;
  auto closed = co_await ports_.luks.close(mapping, owner(volume), while_served(volume, deadline()));
  if (closed) log::info("luks.closed", {{"volume", volume.id}, {"mapping", mapping}});
  co_return closed;
}

task<result<>> LuksSteps::add_key(Volume& volume, const Wish& wish) {
  const auto device = device_path(volume);
  if (!device) co_return device.error();
  const auto key = co_await keys_.key(volume, wish);
  if (!key) co_return key.error();
  volume.facts.keys.reset();
  const auto turn = co_await turn_to_try(volume);
  if (!turn) co_return turn.error();
  co_return co_await ports_.luks.add_key(*device, kSecond, *key, *key, owner(volume),
                                         while_served(volume, long_deadline()));
}

task<result<>> LuksSteps::new_key(Volume& volume, const Wish& wish) {
  const auto device = device_path(volume);
  if (!device) co_return device.error();
  const auto old_key = co_await keys_.key(volume, wish);
  if (!old_key) co_return old_key.error();
  const auto key = kms::make_volume_key();
  if (!key) co_return key.error();
  const plan::KeyWrites writes = volume.facts.keys->writes;
  volume.facts.keys.reset();
  auto turn = co_await turn_to_try(volume);
  if (!turn) co_return turn.error();
  auto added = co_await ports_.luks.add_key(*device, kFirst, *old_key, *key, owner(volume),
                                            while_served(volume, long_deadline()));
  if (!added) co_return added;
  turn->release();  // a silent KMS must not keep other volumes waiting
  if (auto stopped = failpoint::hit("step.new_key.added"); !stopped) co_return stopped;
  auto stored = co_await keys_.store(volume, wish, *key, writes, true);
  if (stored) log::info("luks.rekeyed", {{"volume", volume.id}});
  co_return stored;
}

task<result<>> LuksSteps::remove_key(Volume& volume, int slot) {
  const auto device = device_path(volume);
  if (!device) co_return device.error();
  volume.facts.keys.reset();
  co_return co_await ports_.luks.remove_key(*device, slot, owner(volume), while_served(volume, deadline()));
}

}  // namespace corbd::volume
