// The condition that a volume is reported to have.
#include "corbd/volume/condition.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::volume;
using Kind = Condition::Kind;

namespace {

Status status_of(Health health, errc last = errc::ok) {
  Status status;
  status.health = health;
  status.unserved = health == Health::reconnecting || health == Health::unproven || health == Health::lost;
  if (last != errc::ok) status.last_error = Error{last, "what was tried last"};
  return status;
}

}  // namespace

TEST_CASE("a staged, staging or unstaging volume is healthy, and its condition has no reason") {
  for (const auto health : {Health::staged, Health::staging, Health::unstaging}) {
    CHECK(condition_of(status_of(health)).kind == Kind::healthy);
    CHECK(condition_of(status_of(health)).reason.empty());
  }
}

TEST_CASE("a staged volume stays healthy if only its last wish failed") {
  CHECK(condition_of(status_of(Health::staged, errc::in_use)).kind == Kind::healthy);
}

TEST_CASE("a volume that is not served gets the kind and the reason of its state and last error") {
  struct Row {
    Status status;
    Kind kind;
    const char* reason;
  };
  Status access_lost = status_of(Health::reconnecting);
  access_lost.access_lost = true;
  for (const auto& [status, kind, reason] : {
           Row{status_of(Health::reconnecting), Kind::degraded, "Reconnecting"},
           Row{status_of(Health::reconnecting, errc::unreachable), Kind::inaccessible, "ClusterUnreachable"},
           Row{status_of(Health::reconnecting, errc::fenced), Kind::inaccessible, "ClientFenced"},
           Row{access_lost, Kind::inaccessible, "ClientFenced"},
           Row{status_of(Health::reconnecting, errc::pool_full), Kind::inaccessible, "PoolFull"},
           Row{status_of(Health::reconnecting, errc::node_fenced), Kind::inaccessible, "NodeFenced"},
           Row{status_of(Health::unproven, errc::unproven), Kind::inaccessible, "OwnershipUnproven"},
           Row{status_of(Health::lost, errc::lost), Kind::inaccessible, "ImageLost"},
           Row{status_of(Health::absent), Kind::inaccessible, "DeviceGone"},
           Row{status_of(Health::failed), Kind::inaccessible, "GivenUp"},
       }) {
    CHECK(condition_of(status).kind == kind);
    CHECK(condition_of(status).reason == reason);
  }
}

TEST_CASE("the message about a silent rbd-nbd names its process, the device, the duration and the command to run",
          "[failure:168]") {
  Status status = status_of(Health::staged);
  status.volume_id = "image-1";
  status.device = 3;
  status.served_by_other = true;
  status.other_pids = {4711};
  status.other_silent = std::chrono::seconds(119);
  CHECK(condition_of(status).kind == Kind::healthy);
  status.other_silent = std::chrono::seconds(150);
  const auto silent = condition_of(status);
  CHECK(silent.kind == Kind::inaccessible);
  CHECK(silent.reason == "ServerSilent");
  for (const char* part : {"process 4711", "/dev/nbd3", "150 s", "`corbd heal image-1 --adopt`"})
    CHECK_THAT(silent.message, ContainsSubstring(part));
}

TEST_CASE("the message of a condition contains the text of the last error") {
  CHECK_THAT(condition_of(status_of(Health::lost, errc::lost)).message, ContainsSubstring("what was tried last"));
}

TEST_CASE(
    "a served volume whose oldest request has waited too long is inaccessible with the reason ClusterUnreachable") {
  Status status = status_of(Health::staged);
  status.oldest = std::chrono::seconds(29);
  CHECK(condition_of(status).kind == Kind::healthy);
  status.oldest = std::chrono::seconds(45);
  CHECK(condition_of(status).kind == Kind::inaccessible);
  CHECK(condition_of(status).reason == "ClusterUnreachable");
  for (const char* part : {"45 s", "`ceph health detail`", "full", "quota"})
    CHECK_THAT(condition_of(status).message, ContainsSubstring(part));
}

TEST_CASE("a volume whose filesystem turned read-only is degraded, and the reason says so") {
  Status status = status_of(Health::staged);
  status.turned_read_only = true;
  CHECK(condition_of(status).kind == Kind::degraded);
  CHECK(condition_of(status).reason == "FilesystemReadOnly");
}

TEST_CASE(
    "an image that is smaller than its device is a degraded volume, and the message says what is gone and what to do",
    "[failure:243]") {
  Status status = status_of(Health::staged);
  status.device = 3;
  status.size = 16 << 20;
  status.shrunk_to = 8 << 20;
  const auto condition = condition_of(status);
  CHECK(condition.kind == Kind::degraded);
  CHECK(condition.reason == "ImageShrunk");
  CHECK_THAT(condition.message,
             ContainsSubstring("8388608 bytes") && ContainsSubstring("/dev/nbd3") && ContainsSubstring("rbd resize"));
}

TEST_CASE("a volume over a lost cache is degraded, and the message names both ways out") {
  Status status = status_of(Health::staged);
  status.volume_id = "image-1";
  status.cache_lost = status.turned_read_only = true;
  const auto condition = condition_of(status);
  CHECK(condition.kind == Kind::degraded);
  CHECK(condition.reason == "CacheLost");
  CHECK_THAT(condition.message,
             ContainsSubstring("end its pods") && ContainsSubstring("`corbd heal image-1 --loss-accepted`"));
}

TEST_CASE("a served volume that would be refused again has a condition that says so", "[failure:232]") {
  Status status = status_of(Health::staged);
  status.refused_again = "image pool/a has rbd_cache=true";
  CHECK(condition_of(status).kind == Kind::degraded);
  CHECK(condition_of(status).reason == "NotServedAgain");
  CHECK_THAT(condition_of(status).message, ContainsSubstring("rbd_cache=true"));
}
