// What those who watch a volume from outside are told.
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

TEST_CASE("a volume that is served, or on its way, is healthy and has no reason") {
  for (const auto health : {Health::staged, Health::staging, Health::unstaging}) {
    CHECK(condition_of(status_of(health)).kind == Kind::healthy);
    CHECK(condition_of(status_of(health)).reason.empty());
  }
}

TEST_CASE("an error of the last wish alone makes no volume abnormal") {
  CHECK(condition_of(status_of(Health::staged, errc::in_use)).kind == Kind::healthy);
}

TEST_CASE("each state that keeps a volume from being served has its reason") {
  struct Row {
    Status status;
    Kind kind;
    const char* reason;
  };
  Status cut_off = status_of(Health::reconnecting);
  cut_off.cut_off = true;
  for (const auto& [status, kind, reason] : {
           Row{status_of(Health::reconnecting), Kind::degraded, "Reconnecting"},
           Row{status_of(Health::reconnecting, errc::unreachable), Kind::inaccessible, "ClusterUnreachable"},
           Row{status_of(Health::reconnecting, errc::fenced), Kind::inaccessible, "ClientFenced"},
           Row{cut_off, Kind::inaccessible, "ClientFenced"},
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

TEST_CASE("of a silent rbd-nbd the message says which process, which device, for how long, and what to do") {
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

TEST_CASE("what the last try said is in the message") {
  CHECK_THAT(condition_of(status_of(Health::lost, errc::lost)).message, ContainsSubstring("what was tried last"));
}

TEST_CASE("a served volume whose requests wait for the cluster is not accessible") {
  Status status = status_of(Health::staged);
  status.oldest = std::chrono::seconds(29);
  CHECK(condition_of(status).kind == Kind::healthy);
  status.oldest = std::chrono::seconds(45);
  CHECK(condition_of(status).reason == "ClusterUnreachable");
  CHECK_THAT(condition_of(status).message, ContainsSubstring("45 s"));
}

TEST_CASE("a filesystem that turned read-only is told") {
  Status status = status_of(Health::staged);
  status.turned_read_only = true;
  CHECK(condition_of(status).kind == Kind::degraded);
  CHECK(condition_of(status).reason == "FilesystemReadOnly");
}
