#include "moving_case.hpp"

#include <algorithm>

#include "text.hpp"

namespace corbd::cli {
namespace {

template <class Device, class Fits>
const Device* only(const std::vector<Device>& devices, Fits fits) {
  const auto found = std::find_if(devices.begin(), devices.end(), fits);
  return found == devices.end() ? nullptr : &*found;
}

/// What is mounted tells best. Then the identifier, and what ceph-csi noted.
void find_device(Case& of) {
  const auto& moving = of.moving;
  const auto named = [&](const std::string& name) {
    return only(moving.nbd, [&](const NbdUser& one) { return one.name == name; });
  };
  of.device = of.at.device;
  if (!of.device.empty()) {
    of.nbd = named(of.device);
    return;
  }
  of.nbd = only(moving.nbd, [&](const NbdUser& one) { return !one.backend.empty() && one.backend == of.at.volume_id; });
  if (of.nbd == nullptr && of.stash != nullptr && of.stash->nbd && of.stash->device.starts_with("/dev/")) {
    const auto* noted = named(of.stash->device.substr(5));
    if (noted != nullptr && noted->backend.empty()) of.nbd = noted;
  }
  if (of.nbd != nullptr) {
    of.device = of.nbd->name;
  } else if (of.stash != nullptr && !of.stash->nbd) {
    const auto* mapped = only(moving.krbd, [&](const KernelUser& one) {
      return one.pool == of.stash->pool && one.ns == of.stash->ns && one.image == of.stash->image;
    });
    if (mapped != nullptr) of.device = mapped->name;
  }
}

Server server_now(const Case& of) {
  if (of.device.empty()) return Server::none;
  if (of.device.starts_with("rbd")) return Server::kernel;
  if (of.nbd != nullptr && !of.nbd->others.empty()) return Server::other;
  if (of.moving.agent && of.moving.recorded.contains(of.at.volume_id)) return Server::agent;
  return Server::nobody;
}

std::string server_text(const Case& of) {
  const auto waits = [&]() -> std::string {
    if (of.nbd == nullptr || of.nbd->waiting == 0) return "";
    return ": " + std::to_string(of.nbd->waiting) + " requests wait";
  };
  switch (of.server) {
    case Server::none:
      return "nobody: it has no device";
    case Server::kernel:
      return "the kernel";
    case Server::other:
      return "rbd-nbd, process " + std::to_string(of.nbd->others.front());
    case Server::agent:
      return "corbd";
    case Server::nobody:
      return of.moving.daemons ? "nobody" + waits() : "not known: " + of.moving.daemons.error().text;
  }
  return "";
}

}  // namespace

Case case_of(const Moving& moving, const StagedAt& at) {
  Case of{moving, at};
  if (at.stash && *at.stash) of.stash = &**at.stash;
  find_device(of);
  of.server = server_now(of);
  const auto known = moving.facts.find(at.volume_id);
  if (known == moving.facts.end()) return of;
  if (known->second.volume) of.object = &*known->second.volume;
  if (known->second.secret) of.secret = &*known->second.secret;
  return of;
}

bool is_empty(const Case& of) {
  return of.server == Server::none && of.at.stash && of.stash == nullptr && !of.at.mounted;
}

Prospect begin(const Case& of) {
  Prospect made;
  made.volume_id = of.at.volume_id;
  made.path = of.at.path;
  made.device = of.device.empty() ? "" : "/dev/" + of.device;
  made.now = server_text(of);
  made.persistent_volume = of.object != nullptr ? of.object->name : of.at.persistent_volume;
  if (of.object != nullptr && of.object->claim)
    made.claim = of.object->claim->name_space + "/" + of.object->claim->name;
  return made;
}

void find(Prospect& into, Grade verdict, std::string check, std::string said, std::string way_out) {
  into.findings.push_back({std::move(check), verdict, std::move(said), std::move(way_out)});
}

std::vector<Finding> node_findings(const Moving& moving) {
  std::vector<Finding> all;
  // Of nothing there is nothing to know.
  if (moving.staged.empty()) return all;
  if (!moving.api)
    all.push_back({"api-server", Grade::warning,
                   "the attributes and secrets of the volumes are not known: " + moving.api.error().text,
                   "run this in ceph-csi's pod or one with its service account, or set KUBERNETES_CONFIG_PATH to a "
                   "kubeconfig"});
  if (!moving.daemons)
    all.push_back({"rbd-nbd", Grade::warning, moving.daemons.error().text,
                   "run this as root in the host's PID namespace (`hostPID: true`)"});
  return all;
}

}  // namespace corbd::cli
