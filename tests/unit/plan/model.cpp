#include "model.hpp"

#include <algorithm>
#include <utility>

#include "corbd/core/overloaded.hpp"

namespace corbd::test {

void Model::look(Fact fact) {
  Facts& facts = seen.facts;
  switch (fact) {
    case Fact::resolved:
      facts.resolved = image::Resolved{{"fsid", 1, "", "id-1", 0}, 1 << 30, exclusive_lock, features, "",
                                       {"pool", "", "image"},      kms_id,  encryption_type};
      break;
    case Fact::header:
      facts.header = image::Header{};
      facts.header->features = features;
      break;
    case Fact::ownership:
      facts.ownership = ownership;
      facts.ownership->features = features;
      break;
    case Fact::io_limits:
      facts.io_limits = io_limits;
      break;
    case Fact::holders:
      facts.holders = holders;
      break;
    case Fact::probe:
      facts.probe =
          host::Probe{image_has_filesystem ? host::Probe::Kind::filesystem : host::Probe::Kind::nothing, "ext4"};
      break;
    case Fact::has_data:
      facts.has_data = image_has_data;
      break;
    case Fact::format_marker:
      facts.format_marker = marker;
      break;
    case Fact::image_size:
      seen.image_size = std::max(seen.image_size, cluster_bytes);
      facts.image_size_asked = true;
      break;
    case Fact::filesystem:
      facts.filesystem = host::Extent{filesystem_bytes, 4096};
      break;
    case Fact::unused:
      facts.unused = true;
      break;
    case Fact::stash:
      facts.stash = stash;
      break;
    case Fact::attachment:
      facts.attachment = attachment;
      break;
    case Fact::served_by_other:
      facts.served_by_other = other_serves;
      break;
    case Fact::beside:
      facts.beside = ownership;
      break;
    case Fact::encryption:
      facts.encryption = encryption;
      break;
    case Fact::luks:
      facts.luks = host::LuksHeader{host::Probe{host::Probe::Kind::nothing, ""}, slots};
      if (luks) facts.luks->found = {host::Probe::Kind::other, "crypto_LUKS"};
      if (!luks && image_has_filesystem) facts.luks->found = {host::Probe::Kind::filesystem, "ext4"};
      break;
    case Fact::first_key:
      facts.first_key = first_key;
      break;
    case Fact::keys:
      facts.keys = keys;
      break;
    case Fact::folder:
      facts.folder = folder;
      break;
    case Fact::client_user:
      facts.user_refused = user_refused;
      break;
    case Fact::stage_secret:
      facts.secret_asked = true;
      seen.credential_untried = secret_differs;
      break;
  }
}

void Model::apply(const Step& step, const Wish& wish) {
  const auto is_mounted = [&](const std::string& path) {
    return std::ranges::any_of(seen.mounts, [&](const auto& mount) { return mount.target == path; });
  };
  const auto mount_at = [&](const std::string& path) {
    REQUIRE(answers());
    seen.mounts.push_back(mount_of(seen.devices.front(), path));
  };
  const auto leave_path = [&](const std::string& path, bool sync) {
    // The last unmount of a filesystem syncs it, which needs a link.
    for (const auto& mount : seen.mounts)
      if (mount.target == path && seen.device() != nullptr && shows(mount, *seen.device(), kId) && record) {
        const auto other = [&](const auto& one) {
          return one.target != path && shows(one, *seen.device(), kId) && !host::goes_with(one, mount);
        };
        const bool last = std::ranges::none_of(seen.mounts, other);
        CHECK(sync == last);
        CHECK((!last || answers() || cut));
      }
    {
      const auto before = seen.mounts;
      std::erase_if(seen.mounts, [&](const auto& mount) {
        return std::ranges::any_of(before, [&](const auto& gone) {
          return gone.target == path && (mount.target == path || host::goes_with(mount, gone));
        });
      });
    }
    seen.facts.cleared.insert_or_assign(path, result<>());
    if (cut && !open && seen.mounts.empty() && seen.device() != nullptr && seen.device()->holders.empty())
      seen.devices.clear();
  };
  const auto take_away = [&](bool by_kernel) {
    REQUIRE(by_kernel == (seen.devices.front().kind == device::Kind::krbd));
    for (const auto& mount : seen.mounts) REQUIRE_FALSE(shows(mount, seen.devices.front(), kId));
    REQUIRE_FALSE(seen.facts.disconnected);
    seen.facts.disconnected = !by_kernel;
    if (!open || by_kernel) seen.devices.clear();
    if (seen.link != Observation::Link::none) seen.link = Observation::Link::closed;
    seen.connected = false;
  };
  std::visit(Overloaded{
                 [&](const step::Look& of) { look(of.fact); },
                 [&](const step::WriteRecord& of) { record = of.record; },
                 [&](const step::Fence&) { seen.facts.fenced = true; },
                 [&](const step::TryCredential&) {
                   seen.credential_untried = false;
                   seen.other_credential = secret_differs;
                 },
                 [&](const step::GiveUpClient&) { seen.facts.client_judged = true; },
                 [&](const step::Evict& of) {
                   for (const auto& holder : of.holders) {
                     seen.facts.evicted.insert(holder.address);
                     if (ownership.owner != holder.address) continue;
                     ownership.owner.clear();
                     ownership.lock = Lock::none;
                   }
                   seen.facts.ownership.reset();
                   seen.facts.holders.reset();
                 },
                 [&](const step::OpenImage&) {
                   seen.image_open = true;
                   seen.exclusive_lock = exclusive_lock;
                 },
                 [&](const step::Lock&) {
                   // Our own mark replaces the predecessor's, which was the proof.
                   if (std::exchange(ownership.handed_over, false)) {
                     seen.writer_marked = true;
                     seen.facts.ownership.reset();
                     return;
                   }
                   seen.lock_held = true;
                   seen.lock_took = {};
                   ownership.lock = Lock::mine;
                   if (!std::exchange(late_lock, false)) return;
                   seen.lock_took = std::chrono::minutes(1);
                   seen.facts.ownership.reset();
                   seen.facts.attachment.reset();
                 },
                 [&](const step::OpenTombstone&) { seen.image_open = seen.tombstone = true; },
                 [&](const step::AcceptLoss&) { seen.fails_flushes = false; },
                 [&](const step::StartSession&) {
                   seen.fails_flushes = record->cache_lost;
                   seen.link = Observation::Link::serving;
                   seen.connected = false;
                 },
                 [&](const step::KernelConnect&) {
                   REQUIRE(seen.devices.empty());
                   seen.devices.push_back(device_seen(3));
                   seen.connected = true;
                   seen.facts.disconnected = cut = false;
                 },
                 [&](const step::KernelReconfigure&) {
                   REQUIRE_FALSE(seen.facts.disconnected);
                   seen.connected = !cut;
                   seen.facts.disconnected = cut;
                 },
                 [&](const step::KernelResize&) {
                   REQUIRE(seen.link == Observation::Link::serving);
                   REQUIRE(seen.connected);
                   seen.devices.front().size = seen.image_size;
                 },
                 [&](const step::Tune&) {
                   seen.devices.front().io_timeout_ms = 1000;
                   seen.devices.front().read_only = record->reads_only();
                   seen.facts.tuned = record->reads_only();
                 },
                 [&](const step::SetFormatMarker&) {
                   REQUIRE_FALSE(image_has_data);
                   seen.facts.format_marker = marker = record->format->marker;
                   if (record->device.kind == device::Kind::krbd) seen.facts.ownership.reset();
                 },
                 [&](const step::RemoveFormatMarker&) { seen.facts.format_marker = marker = ""; },
                 [&](const step::Mkfs&) {
                   REQUIRE_FALSE(image_has_filesystem);
                   REQUIRE_FALSE(marker.empty());
                   REQUIRE(marker == record->format->marker);
                   image_has_filesystem = image_has_data = true;
                   seen.facts.probe.reset();
                   seen.facts.checked = true;
                 },
                 [&](const step::Fsck&) {
                   const auto* mapped = mapping_of(seen.devices.front(), kId);
                   REQUIRE_FALSE((seen.devices.front().read_only || (mapped != nullptr && mapped->read_only)));
                   seen.facts.checked = true;
                   if (record->source.on_damage == OnDamage::fsck)
                     damage.clear();
                   else
                     seen.facts.damage = damage;
                 },
                 [&](const step::Mount& of) {
                   const auto& device = seen.devices.front();
                   const auto* mapped = mapping_of(device, kId);
                   if (!damage.empty()) REQUIRE((device.read_only && (mapped == nullptr || mapped->read_only)));
                   mount_at(of.path);
                   seen.mounts.back().filesystem_read_only = record->reads_only();
                 },
                 [&](const step::Bind& of) { mount_at(of.path); },
                 [&](const step::Grow& of) {
                   REQUIRE(answers());
                   REQUIRE_FALSE(record->use.read_only);
                   REQUIRE(std::ranges::any_of(seen.mounts, [&](const auto& mount) {
                     return mount.target == of.path && !mount.filesystem_read_only;
                   }));
                   filesystem_bytes = seen.devices.front().size;
                   seen.facts.grown = true;
                 },
                 [&](const step::LimitIo& of) {
                   REQUIRE(of.limits == io_limits);
                   seen.facts.io_limited = takes_limits;
                 },
                 [&](const step::Trim&) {
                   REQUIRE(answers());
                   REQUIRE_FALSE(record->use.read_only);
                   seen.facts.trimmed = true;
                 },
                 [&](const step::Freeze& of) {
                   REQUIRE(answers());
                   REQUIRE(is_mounted(of.path));
                   REQUIRE(record->freeze);
                   seen.facts.freeze_answer = freezes == Freezes::nobody ? "" : "no";
                   if (freezes == Freezes::nobody) freezes = Freezes::agent;
                 },
                 [&](const step::Thaw& of) {
                   REQUIRE((answers() || cut));
                   REQUIRE(is_mounted(of.path));
                   REQUIRE(record->freeze);
                   REQUIRE(freezes != Freezes::somebody_else);
                   freezes = Freezes::nobody;
                   seen.facts.thawed = true;
                 },
                 [&](const step::Unbind& of) { leave_path(of.path, of.sync); },
                 [&](const step::Umount& of) { leave_path(of.path, of.sync); },
                 [&](const step::MapKrbd&) {
                   REQUIRE(seen.devices.empty());
                   seen.devices.push_back(device_seen(3, device::Kind::krbd));
                   seen.facts.ownership.reset();
                 },
                 [&](const step::UnmapKrbd&) { take_away(true); },
                 [&](const step::Disconnect&) { take_away(false); },
                 [&](const step::StopSession&) {
                   seen.fails_flushes = false;
                   seen.link = Observation::Link::none;
                   seen.connected = false;
                 },
                 [&](const step::OpenNext&) { seen.facts.next_tried = true; },
                 [&](const step::ChangeClient&) {
                   REQUIRE(answers());
                   REQUIRE(seen.other_credential);
                   seen.fails_flushes = seen.connected = seen.image_open = seen.lock_held = seen.writer_marked = false;
                   seen.link = Observation::Link::none;
                   seen.link_inherited = true;
                   ownership.lock = exclusive_lock ? Lock::our_dead : Lock::none;
                   ownership.handed_over = !exclusive_lock;
                   Facts kept;
                   kept.cleared = std::move(seen.facts.cleared);
                   kept.stash = seen.facts.stash;
                   kept.attachment = seen.facts.attachment;
                   kept.client_changed = true;
                   seen.facts = std::move(kept);
                   seen.other_credential = false;
                 },
                 [&](const step::CloseImage&) {
                   seen.image_open = seen.image_cut_off = seen.lock_held = seen.tombstone = false;
                   seen.lock_took = {};
                   {
                     Facts kept;
                     kept.cleared = std::move(seen.facts.cleared);
                     kept.stash = seen.facts.stash;
                     kept.attachment = seen.facts.attachment;
                     seen.facts = std::move(kept);
                   }
                 },
                 [&](const step::DropRecord&) { record.reset(); },
                 [&](const step::Dismiss&) {
                   other_serves = false;
                   ownership = {};
                   seen.facts.ownership.reset();
                   seen.facts.served_by_other.reset();
                   seen.facts.dismissed = true;
                 },
                 [&](const step::WriteStash& of) {
                   REQUIRE(of.path == kPath);
                   seen.facts.stash = stash = of.stash;
                 },
                 [&](const step::DropStash& of) {
                   REQUIRE(of.path == kPath);
                   stash.reset();
                   seen.facts.stash.emplace();
                 },
                 [&](const step::WriteNote& of) {
                   REQUIRE(seen.image_open);
                   metadata = seen.facts.noted = of.note;
                 },
                 [&](const step::Inherit& of) {
                   REQUIRE_FALSE(other_serves);
                   REQUIRE(of.address == ownership.owner);
                   ownership.lock = Lock::our_dead;
                   seen.facts.ownership.reset();
                   seen.facts.fenced.reset();
                 },
                 [&](const step::LuksFormat&) {
                   REQUIRE(slots.empty());
                   REQUIRE(seen.devices.front().holders.empty());
                   REQUIRE_FALSE(marker.empty());
                   REQUIRE(marker == record->format->marker);
                   REQUIRE_FALSE((image_has_filesystem && !luks));
                   luks = image_has_data = true;
                   image_has_filesystem = false;
                   slots = {0};
                   seen.facts.luks.reset();
                 },
                 [&](const step::LuksNote&) {
                   encryption = "encrypted";
                   seen.facts.encryption = encryption;
                 },
                 [&](const step::LuksOpen&) {
                   REQUIRE_FALSE(slots.empty());
                   REQUIRE(top_mapping(seen.devices.front(), kId) == nullptr);
                   REQUIRE(answers());
                   seen.devices.front().holders.push_back(mapping());
                   seen.devices.front().holders.back().read_only = record->reads_only();
                   seen.facts.fits = true;
                 },
                 [&](const step::LuksResize&) {
                   REQUIRE(mapping_of(seen.devices.front(), kId) != nullptr);
                   REQUIRE(integrity_of(seen.devices.front(), kId) == nullptr);
                   seen.facts.fits = true;
                 },
                 [&](const step::LuksClose&) {
                   for (const auto& mount : seen.mounts) REQUIRE_FALSE(shows(mount, seen.devices.front(), kId));
                   seen.devices.front().holders.clear();
                 },
                 [&](const step::FscryptMake& of) {
                   REQUIRE(answers());
                   REQUIRE(folder == host::EncryptedFolder::none);
                   REQUIRE_FALSE(record->use.read_only);
                   REQUIRE(is_mounted(of.path));
                   seen.facts.folder = folder = host::EncryptedFolder::unlocked;
                 },
                 [&](const step::FscryptUnlock& of) {
                   REQUIRE(answers());
                   REQUIRE(folder == host::EncryptedFolder::locked);
                   REQUIRE(is_mounted(of.path));
                   seen.facts.folder = folder = host::EncryptedFolder::unlocked;
                 },
                 [&](const step::FscryptLock& of) {
                   REQUIRE((answers() || cut));
                   REQUIRE(is_mounted(of.path));
                   if (folder == host::EncryptedFolder::unlocked) folder = host::EncryptedFolder::locked;
                   seen.facts.folder.reset();
                   seen.facts.folder_locked = true;
                 },
                 [&](const step::MakeKey&) {
                   REQUIRE_FALSE(first_key.there);
                   REQUIRE((first_key.writes.ordered || !first_key.sent || first_key.at_hand));
                   first_key.there = first_key.is_sent = true;
                   seen.facts.first_key.reset();
                   seen.facts.key_stored = KeyStored{true};
                 },
                 [&](const step::ConfirmKey&) {
                   confirmed = true;
                   seen.facts.keys.reset();
                   seen.facts.key_stored = KeyStored{};
                 },
                 [&](const step::AddKey&) {
                   REQUIRE_FALSE(keys.second.used);
                   keys.second = {true, true};
                   seen.facts.keys.reset();
                 },
                 [&](const step::NewKey&) {
                   REQUIRE_FALSE(keys.first.used);
                   REQUIRE(keys.writes.ordered);
                   keys = {{true, true}, {true, false}, keys.writes};
                   seen.facts.key_stored = KeyStored{true};
                   confirmed = true;
                   seen.facts.keys.reset();
                 },
                 [&](const step::RemoveKey& of) {
                   // A slot that opens with the KMS's key stays.
                   REQUIRE((of.slot == 0 ? keys.second : keys.first).opens);
                   // One that does not open has a key that the KMS may still get, until it has stored another.
                   REQUIRE(((of.slot == 0 ? keys.first : keys.second).opens || confirmed));
                   (of.slot == 0 ? keys.first : keys.second) = {};
                   seen.facts.keys.reset();
                 },
             },
             step);
  static_cast<void>(wish);
}

}  // namespace corbd::test
