#include "node_writers.hpp"

#include <unistd.h>

#include "corbd/host/ceph_clients.hpp"

namespace corbd::agent {
namespace {

using fence::NodeWriters;

void add_volumes(NodeWriters& facts, const NodeParts& parts) {
  // Without the mount table nobody knows which device is mounted.
  if (const auto mounts = parts.mounts.table(); !mounts)
    facts.unseen.push_back("the mounts of this node: " + mounts.error().text);
  for (const auto& status : parts.volumes.status()) {
    if (!status.device || !traits(status.kind).served) continue;
    facts.volumes.push_back({.id = status.volume_id,
                             .fsid = status.image_key.substr(0, status.image_key.find('/')),
                             .device = device::path(*status.device, status.kind),
                             .given_up = status.health == volume::Health::failed,
                             .in_use = status.in_use || !status.published_at.empty()});
  }
}

void add_devices(NodeWriters& facts, const NodeParts& parts) {
  if (const auto served = parts.devices.inventory(); !served)
    facts.unseen.push_back("the devices of this node: " + served.error().text);
  else
    for (const auto& seen : *served)
      // A disconnected device takes no request, and no link any more.
      if (!seen.disconnected) facts.devices.push_back({device::path(seen), seen.backend});
  if (const auto mapped = parts.kernel.inventory(); !mapped)
    facts.unseen.push_back("the devices of the kernel's own client: " + mapped.error().text);
  else
    for (const auto& one : *mapped) facts.devices.push_back({device::path(one.seen), {}, one.key.fsid});
}

}  // namespace

task<NodeWriters> look_for_writers(NodeParts parts, Until until) {
  NodeWriters facts;
  add_volumes(facts, parts);
  add_devices(facts, parts);
  auto job = []() -> result<host::CephClients> { return host::find_ceph_clients("", ::getpid()); };
  auto others = co_await parts.files.run(std::move(job), until, "looking for Ceph clients of this node");
  if (!others) {
    facts.unseen.push_back(others.error().text);
    co_return facts;
  }
  facts.programs = std::move(others->programs);
  facts.unsent = std::move(others->unsent);
  facts.cephfs = others->cephfs;
  facts.unseen.insert(facts.unseen.end(), others->unseen.begin(), others->unseen.end());
  co_return facts;
}

}  // namespace corbd::agent
