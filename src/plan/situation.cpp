#include "situation.hpp"

#include <algorithm>

#include "krbd.hpp"

namespace corbd::plan {
namespace {

/// Says how a person closes a device that the host put above another one.
std::string way_to_close(const device::UpperDevice& holder) {
  const std::string filter = " keeps it from such devices (docs/devices.md#lvm)";
  const auto run = [&](const std::string& command) { return ": run `" + command + "` on the host, and repeat"; };
  if (holder.maker == device::Maker::lvm)
    return " of the host's LVM" + run("vgchange -an " + device::volume_group(holder.mapping)) +
           ". LVM's global_filter" + filter;
  if (holder.maker == device::Maker::multipath)
    return " of the host's multipath" + run("multipath -f " + holder.mapping) + ". A blacklist in multipath.conf" +
           filter;
  if (holder.maker == device::Maker::crypt)
    return ", a mapping of cryptsetup that corbd did not make" + run("cryptsetup close " + holder.mapping);
  if (!holder.mapping.empty())
    return ", a mapping that somebody made on the host" + run("dmsetup remove " + holder.mapping);
  if (holder.name.starts_with("md"))
    return ", an array of the host's mdadm: run `mdadm --stop /dev/" + holder.name +
           "` on the host, and repeat. `AUTO -all` in mdadm.conf" + filter;
  return ": close that on the host, and repeat";
}

}  // namespace

std::string image_text(const image::Name& name, const image::Key& key) {
  return name.text() + " (image ID " + key.image_id + ")";
}

std::string image_of(const Situation& view) {
  const Source& source = view.record->source;
  return "image " + image_text({source.pool, source.ns, source.image}, view.record->key) + " of volume " + view.id;
}

bool shows_device_that_is_gone(const Situation& view, const std::string& target) {
  const Record& record = *view.record;
  if (!record.device.index || !view.seen.devices.empty()) return false;
  const std::string node = "/" + device::name(record.device.kind, *record.device.index);
  return std::ranges::any_of(view.seen.mounts, [&](const auto& mount) {
    return mount.target == target && mount.fstype == "devtmpfs" &&
           (mount.root == node || mount.root == node + "//deleted");
  });
}

Decision given_up(const Situation& view) {
  return refuse(errc::lost,
                "volume " + view.id +
                    " was given up and answers with I/O errors: end its pods and unstage it, then stage it again");
}

Decision refuse(errc code, std::string text) { return Refusal{{code, std::move(text)}}; }

Decision refuse(Error error) { return Refusal{std::move(error)}; }

Step look(Fact fact) { return step::Look{fact}; }

Step name_device(const Situation& view, std::optional<std::uint32_t> index) {
  step::WriteRecord step{*view.record};
  // Nothing kept other nodes away between two devices. So a format that was begun on the first no longer counts.
  if (index != view.record->device.index) step.record.format.reset();
  // Callers that waited for the old device's flushes got its error.
  if (view.record->device.index && index != view.record->device.index) step.record.cache_lost = false;
  step.record.proof.operator_override = false;  // it is served
  step.record.device.index = index;
  if (view.seen.image_open) step.record.device.exclusive_lock = view.seen.exclusive_lock;
  if (by_kernel(view)) step.record.device.io_limits = view.seen.facts.io_limits.value_or(IoLimits());
  step.record.proof.lock_call.reset();
  step.record.adopting.reset();
  step.record.proof.modified = index ? view.seen.modified : std::nullopt;
  if (view.seen.facts.noted) step.record.note = view.seen.facts.noted;
  return step;
}

Decision no_key(const Situation& view) {
  const std::string& why = view.seen.key_unread;
  return Refusal{{errc::unavailable, "the agent has no Ceph key of user " + view.record->user + " for volume " +
                                         view.id + (why.empty() ? "" : ": " + why) + ": " + kStageAgain},
                 false,
                 true};
}

Decision without_record(const Situation& view, const std::string& path) {
  return refuse(errc::failed_precondition,
                "volume " + view.id + " is mounted at " + path + ", but driver " + view.policy.driver +
                    " has no record of it: ceph-csi staged it, or the state directory was lost. It is this agent's "
                    "once the API server names it (`corbd volumes` says why not yet), or with its next stage: restart "
                    "kubelet on this node");
}

std::optional<Decision> refuse_held(const Situation& view, const device::Seen& device, bool encrypted) {
  // The uppermost comes last, and is the first that can be closed.
  for (auto at = device.holders.rbegin(); at != device.holders.rend(); ++at) {
    if (encrypted && is_own_mapping(*at, view.id)) continue;
    return refuse(errc::in_use, device::path(device) + " of volume " + view.id + " is used by " +
                                    (at->mapping.empty() ? at->name : at->mapping) + way_to_close(*at));
  }
  return std::nullopt;
}

Source found_at(const Source& wished, const image::Resolved& found) {
  Source source = wished;
  source.cluster_id = found.cluster_id;
  source.pool = found.name.pool;
  source.ns = found.name.ns;
  source.image = found.name.image;
  return source;
}

Step remove_device(device::Kind kind) {
  return traits(kind).served ? Step(step::Disconnect{}) : Step(step::UnmapKrbd{});
}

Wait until_closed(const Situation& view) {
  const std::string path = device::path(*view.seen.device());
  return Wait{path + " of volume " + view.id + " is disconnected, but another process still has it open: `fuser -v " +
              path + "` shows who"};
}

}  // namespace corbd::plan
