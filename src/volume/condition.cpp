#include "corbd/volume/condition.hpp"

namespace corbd::volume {
namespace {

using Kind = Condition::Kind;
constexpr std::chrono::seconds kSlow{30};

std::string because(const Status& status) { return status.last_error ? ": " + status.last_error->text : ""; }

/// Its device has no server.
Condition unserved(const Status& status) {
  const errc code = status.last_error ? status.last_error->code : errc::ok;
  if (status.cut_off || code == errc::fenced)
    return {Kind::inaccessible, "ClientFenced",
            "the cluster cut its client off, and its I/O waits until another one serves it" + because(status)};
  if (code == errc::unreachable)
    return {Kind::inaccessible, "ClusterUnreachable",
            "its cluster does not answer, and its I/O waits" + because(status)};
  return {Kind::degraded, "Reconnecting",
          "its device has no server now, and its I/O waits until it is healed" + because(status)};
}

}  // namespace

Condition condition_of(const Status& status) {
  switch (status.health) {
    case Health::failed:
      return {Kind::inaccessible, "GivenUp",
              "it was given up: every request gets an I/O error until it is unstaged and staged anew"};
    case Health::lost:
      return {Kind::inaccessible, "ImageLost",
              "its image is not this node's any more, and it is not served" + because(status)};
    case Health::unproven:
      return {Kind::inaccessible, "OwnershipUnproven",
              "it is not proven that its image is still this node's, and its I/O waits" + because(status)};
    case Health::reconnecting:
      return unserved(status);
    case Health::absent:
      return {Kind::inaccessible, "DeviceGone",
              "its device is gone, with an earlier boot or by another's hand: end its pods, and it is unstaged and "
              "staged anew"};
    case Health::staging:
    case Health::staged:
    case Health::unstaging:
      break;
  }
  if (status.unserved) return unserved(status);
  if (status.oldest >= kSlow) {
    const auto waits = std::chrono::duration_cast<std::chrono::seconds>(status.oldest).count();
    return {Kind::inaccessible, "ClusterUnreachable",
            "its cluster has not answered a request for " + std::to_string(waits) + " s"};
  }
  if (status.turned_read_only)
    return {Kind::degraded, "FilesystemReadOnly",
            "its filesystem turned read-only after an error: end its pods, and stage it anew, which checks it"};
  return {Kind::healthy, "", "volume is in a healthy condition"};
}

}  // namespace corbd::volume
