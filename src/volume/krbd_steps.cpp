#include "krbd_steps.hpp"

#include "corbd/cephcsi/affinity.hpp"
#include "corbd/cephcsi/parameters.hpp"
#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

/// A volume without a record has ceph-csi's options, in its stash.
result<std::string> unmap_options(const Volume& volume) {
  if (volume.record) return volume.record->source.kernel.unmap;
  if (volume.facts.stash && *volume.facts.stash)
    return cephcsi::parse_kernel_options((*volume.facts.stash)->unmap_options);
  return std::string();
}

}  // namespace

/// Returns the options in the order of `rbd map`: those of ceph.conf or the cluster first, then the volume's. The last
/// of one name counts.
task<result<std::string>> KrbdSteps::map_options(const Volume& volume) {
  constexpr const char* kDefaults = "rbd_default_map_options";
  const auto to = access(volume);
  if (!to) co_return to.error();
  const auto found = co_await ports_.clusters.setting(*to, kDefaults, deadline());
  if (!found) co_return found.error();
  auto options = cephcsi::parse_kernel_options(*found);
  if (!options)
    co_return Error{errc::failed_precondition,
                    std::string(kDefaults) + " of ceph.conf or of the cluster: " + options.error().text};
  // The volume's access mode decides, and its own options.
  if (cephcsi::kernel_read_only(*options)) *options += ",rw";
  const std::string& own = volume.record->source.kernel.map;
  co_return *options + (options->empty() || own.empty() ? "" : ",") + own;
}

task<result<>> KrbdSteps::map(Volume& volume) {
  const Source& source = volume.record->source;
  if (auto to = co_await find_access(volume); !to) co_return to.error();
  const auto found = cluster_of(ports_, *volume.record);
  if (!found) co_return found.error();
  const Cluster* const cluster = &found->cluster;
  device::MapArgs args;
  args.monitors = cluster->monitors;
  args.user = volume.credentials.asks_with().user;
  args.key = volume.credentials.asks_with().key;
  args.name = {source.pool, source.ns, source.image};
  args.image = volume.record->key;
  args.read_only = volume.record->use.read_only;
  auto options = co_await map_options(volume);
  if (!options) co_return options.error();
  args.options = cephcsi::with_policy(std::move(*options), cluster->reads);
  if (volume.server.image() != nullptr) co_await look_at_io_limits(volume);
  // Another client may come during the map, so the planner looks again.
  volume.facts.ownership.reset();
  auto mapped = co_await ports_.kernel.map(std::move(args), owner(volume), deadline());
  if (!mapped) co_return mapped;
  log::info("device.mapped", {{"volume", volume.id}, {"image", volume.record->key.text()}});
  volume.credentials.worked();
  volume.device.mapped_as = volume.credentials.known();
  co_return result<>();
}

task<result<>> KrbdSteps::unmap(Volume& volume) {
  const auto device = device_of(volume);
  if (!device) co_return device.error();
  const auto options = unmap_options(volume);
  if (!options) co_return options.error();
  auto gone = co_await ports_.kernel.unmap(device->index, *options, owner(volume), deadline());
  if (gone) log::info("device.unmapped", {{"volume", volume.id}, {"device", device::path(*device)}});
  co_return gone;
}

}  // namespace corbd::volume
