#include "corbd/volume/condition.hpp"

#include "server_watchdog.hpp"

namespace corbd::volume {
namespace {

using Kind = Condition::Kind;

std::string because(const Status& status) { return status.last_error ? ": " + status.last_error->text : ""; }

/// The agent does not end that process by itself: it may hold writes that it has acknowledged, and its client may still
/// write.
Condition silent(const Status& status) {
  std::string who;
  for (const int pid : status.other_pids) who += (who.empty() ? "process " : ", ") + std::to_string(pid);
  const auto lasted = std::chrono::duration_cast<std::chrono::seconds>(status.other_silent).count();
  return {
      Kind::inaccessible, "ServerSilent",
      "rbd-nbd" + (who.empty() ? "" : " (" + who + ")") + " has answered no request of " +
          (status.device ? device::path(*status.device, status.kind) : "the device") + " for " +
          std::to_string(lasted) +
          " s, and I/O waits until rbd-nbd answers or ends. See whether the cluster answers and whether the process "
          "is stopped. `corbd heal " +
          status.volume_id +
          " --adopt` asks it to end, and serves the volume. If that fails, kill the process: writes that only its "
          "cache holds are lost"};
}

Condition unserved(const Status& status) {
  const errc code = status.last_error ? status.last_error->code : errc::ok;
  if (code == errc::node_fenced)
    return {Kind::inaccessible, "NodeFenced", "the cluster has fenced this node, and I/O waits" + because(status)};
  if (status.access_lost || code == errc::fenced)
    return {Kind::inaccessible, "ClientFenced",
            "the volume's client was cut off by the cluster or lost its lock; I/O waits until a new client serves the "
            "volume" +
                because(status)};
  if (code == errc::unreachable)
    return {Kind::inaccessible, "ClusterUnreachable", "the cluster does not answer, and I/O waits" + because(status)};
  if (code == errc::pool_full)
    return {Kind::inaccessible, "PoolFull", "the image's pool is full, and I/O waits" + because(status)};
  return {Kind::degraded, "Reconnecting",
          "the device has no server, and I/O waits until the volume is healed" + because(status)};
}

}  // namespace

std::string text_of_shrunk(const Status& status) {
  const std::string device = status.device ? device::path(*status.device, status.kind) : "its device";
  return "another client made the image smaller, to " + std::to_string(*status.shrunk_to) +
         " bytes: what lay beyond them is gone, and every access of " + device +
         " there gets an I/O error. End the volume's pods, grow the image back with `rbd resize`, restore what is "
         "missing from a backup, and check the filesystem";
}

std::string text_of_refused_kernel(const Status& status) {
  const std::string device = status.device ? device::path(*status.device, status.kind) : "its device";
  return "the cluster has blocklisted the kernel client " + status.kernel_refused + " of " + device +
         ": all I/O gets errors, also after the entry has ended. If the node is "
         "fenced, lift the fence. Then end the volume's pods on this node, so that it is unstaged: its next stage maps "
         "the image anew. The kernel keeps using that client while another /dev/rbd device has it (see "
         "/sys/bus/rbd/devices/*/client_addr), so unstage those first";
}

std::string text_of_lost_cache(const std::string& volume_id) {
  return "rbd-nbd was killed, and writes that it had acknowledged and not stored may be lost. So that no program takes "
         "them for stored, every fsync fails until the volume is unstaged: end its pods on this node, and check their "
         "data or restore it from a backup. To keep the pods running over what is left: `corbd heal " +
         volume_id + " --loss-accepted` on the node";
}

Condition condition_of(const Status& status) {
  switch (status.health) {
    case Health::failed:
      return {Kind::inaccessible, "GivenUp",
              "the volume was given up: every request gets an I/O error until the volume is unstaged and staged again"};
    case Health::lost:
      return {Kind::inaccessible, "ImageLost",
              "the image is no longer this node's, and the volume is not served" + because(status)};
    case Health::unproven:
      return {Kind::inaccessible, "OwnershipUnproven",
              "nothing proves that the image is still this node's, and I/O waits" + because(status)};
    case Health::reconnecting:
      return unserved(status);
    case Health::absent:
      return {Kind::inaccessible, "DeviceGone",
              "the device is gone, after a reboot or because another program disconnected it: end the volume's pods, "
              "so that it is unstaged and staged again"};
    case Health::staging:
    case Health::staged:
    case Health::unstaging:
      break;
  }
  if (status.unserved) return unserved(status);
  if (!status.kernel_refused.empty()) return {Kind::inaccessible, "ClientFenced", text_of_refused_kernel(status)};
  if (status.other_silent >= kServerSilent) return silent(status);
  if (status.oldest >= kUnreachableAfter) {
    const auto waits = std::chrono::duration_cast<std::chrono::seconds>(status.oldest).count();
    return {Kind::inaccessible, "ClusterUnreachable",
            "the cluster has not answered a request for " + std::to_string(waits) +
                " s: `ceph health detail` says whether a pool is full or has reached its quota, or placement groups "
                "are inactive. If it shows nothing, see whether this node reaches the OSDs"};
  }
  if (status.shrunk_to) return {Kind::degraded, "ImageShrunk", text_of_shrunk(status)};
  if (status.cache_lost) return {Kind::degraded, "CacheLost", text_of_lost_cache(status.volume_id)};
  if (status.turned_read_only)
    return {Kind::degraded, "FilesystemReadOnly",
            "the filesystem turned read-only after an error: end the volume's pods, so that the next stage checks it"};
  if (status.damaged)
    return {Kind::degraded, "FilesystemDamaged",
            "the filesystem was damaged when it was staged, and is mounted read-only: repair it by "
            "docs/runbook.md#a-damaged-filesystem"};
  if (!status.refused_again.empty())
    return {Kind::degraded, "NotServedAgain",
            "the volume is served as before, but the next start or handover of the agent refuses it: " +
                status.refused_again};
  return {Kind::healthy, "", "volume is in a healthy condition"};
}

}  // namespace corbd::volume
