#include "kernel_watch.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "corbd/core/log.hpp"
#include "corbd/volume/condition.hpp"

namespace corbd::volume {
namespace {

/// A monitor answers from memory, and all nodes that have such volumes ask.
constexpr std::chrono::minutes kLooksEvery{2};
constexpr std::chrono::seconds kBlocklistWithin{10};

bool is_of_kernel(const Volume& volume) {
  return volume.record && volume.record->device.index && !traits(volume.record->device.kind).served;
}

}  // namespace

void KernelWatch::start() { rounds_.start(kLooksEvery, kLooksEvery); }

/// Asks once per cluster: the blocklist is the same for all its users.
task<> KernelWatch::look(std::shared_ptr<CancelScope> leaving) {
  std::vector<std::string> ids;
  for (const auto& [id, volume] : volumes_)
    if (is_of_kernel(*volume)) ids.push_back(id);
  std::set<std::string> asked;
  std::vector<image::Access> tried;
  for (const auto& id : ids) {
    const Volume* const volume = volumes_.find(id);
    if (leaving->cancelled() || volume == nullptr || !is_of_kernel(*volume)) continue;
    const std::string fsid = volume->record->key.fsid;
    const auto access = access_of(ports_, *volume->record, volume->credentials.known());
    if (!access || asked.contains(fsid) || std::ranges::find(tried, *access) != tried.end()) continue;
    tried.push_back(*access);
    const auto listed = co_await ports_.clusters.blocklist(*access, {clock_.now() + kBlocklistWithin, leaving.get()});
    // Another user may be let in. A cluster that does not answer one user answers nobody.
    if (listed || !is_refusal(listed.error())) asked.insert(fsid);
    if (listed)
      note(*listed);
    else
      log::debug("blocklist.unread", {{"cluster", access->cluster_id}, {"error", listed.error().text}});
  }
}

/// A kernel client that writes does not come back once the cluster has refused it, so this is reported once, and an
/// entry that ends changes nothing.
void KernelWatch::note(const image::Blocklist& listed) {
  const auto all = ports_.kernel.inventory();
  if (!all) return;
  for (const auto& [id, volume] : volumes_) {
    if (!is_of_kernel(*volume) || volume->record->key.fsid != listed.fsid) continue;
    for (const auto& device : device::of_image(*all, volume->record->key)) {
      const auto* entry = listed.find(device.client);
      // A read-only mapping has neither a watch nor a lock, so its reads go on once the entry has ended.
      if (entry == nullptr && volume->record->use.read_only && volume->device.refused_client == device.client)
        volume->device.refused_client.clear();
      if (entry == nullptr || volume->device.refused_client == device.client) continue;
      volume->device.refused_client = device.client;
      log::error(
          "volume.kernel_client_fenced",
          {{"volume", id}, {"device", device::path(device)}, {"client", device.client}, {"entry", entry->text()}});
      health_.notify(id, {"ClientFenced", true, text_of_refused_kernel(status_of(*volume, &device, {}))});
    }
  }
}

}  // namespace corbd::volume
