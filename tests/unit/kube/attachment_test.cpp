// Whether a volume has stayed on this node, by the API server's objects and the traces of an earlier stage.
#include "corbd/kube/attachment.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::kube;
using namespace std::chrono_literals;

namespace {

const std::string kDriver = "rbd.csi.ceph.com", kHandle = "0001-0004-prod-0000000000000001-v";

PersistentVolume a_volume() {
  PersistentVolume made;
  made.name = "pv-1";
  made.driver = kDriver;
  made.handle = kHandle;
  made.bound = true;
  made.access_modes = {"ReadWriteOnce"};
  made.node_stage_secret = Reference{"secret", "ceph"};
  return made;
}

std::string why(const result<>& checked) { return checked ? "" : checked.error().text; }
std::string why_not(const PersistentVolume& of) { return why(check_bound(of, kDriver, kHandle)); }

/// The time since 1970, by either clock.
std::chrono::system_clock::time_point clock_at(std::chrono::milliseconds since) {
  return std::chrono::system_clock::time_point(since);
}
StageTraces staged_at(std::chrono::milliseconds since) {
  StageTraces traces;
  traces.staged = clock_at(since);
  return traces;
}
VolumeAttachment attached_at(std::chrono::milliseconds since) {
  VolumeAttachment attachment;
  attachment.created = clock_at(since);
  return attachment;
}

}  // namespace

TEST_CASE(
    "a VolumeAttachment counts if driver, node and state match, and a lasting mismatch is told apart from a passing "
    "one") {
  VolumeAttachment attachment;
  attachment.uid = "u";
  attachment.attacher = kDriver;
  attachment.node = "node-1";
  attachment.attached = true;
  const auto code = [](const VolumeAttachment& of) {
    const auto checked = check_attached(of, kDriver, "node-1");
    return checked ? errc::ok : checked.error().code;
  };
  CHECK(code(attachment) == errc::ok);
  auto other = attachment;
  SECTION("another node's") { CHECK(code((other.node = "node-2", other)) == errc::not_found); }
  SECTION("another driver's") { CHECK(code((other.attacher = "nfs", other)) == errc::not_found); }
  SECTION("without a UID") { CHECK(code((other.uid = "", other)) == errc::unavailable); }
  SECTION("being deleted") { CHECK(code((other.deleting = true, other)) == errc::unavailable); }
  SECTION("not attached yet") { CHECK(code((other.attached = false, other)) == errc::unavailable); }
}

TEST_CASE(
    "a PersistentVolume with a wrong driver, handle, binding, mode or secret is refused, and the error says why") {
  CHECK(why_not(a_volume()) == "");
  auto other = a_volume();
  other.driver = "";
  CHECK_THAT(why_not(other), ContainsSubstring("not a CSI volume"));
  other = a_volume();
  other.driver = "nfs";
  CHECK_THAT(why_not(other), ContainsSubstring("nfs"));
  other = a_volume();
  other.handle = "x";
  CHECK_THAT(why_not(other), ContainsSubstring("volume x"));
  other = a_volume();
  other.bound = false;
  CHECK_THAT(why_not(other), ContainsSubstring("not bound"));
  other = a_volume();
  other.mode = "Stream";
  CHECK_THAT(why_not(other), ContainsSubstring("volumeMode Stream"));
  other = a_volume();
  other.access_modes.clear();
  CHECK_THAT(why_not(other), ContainsSubstring("access mode"));
  other = a_volume();
  other.node_stage_secret.reset();
  CHECK_THAT(why_not(other), ContainsSubstring("nodeStageSecretRef"));
}

TEST_CASE("a stage older than the present attachment does not count as ours") {
  CHECK(why(check_stayed(staged_at(100s), attached_at(100s), 0ms)) == "");
  CHECK_THAT(why(check_stayed(staged_at(99999ms), attached_at(100s), 0ms)), ContainsSubstring("staged before"));
}

TEST_CASE("a volume without a stash or an attachment time does not count as ours") {
  CHECK_THAT(why(check_stayed(StageTraces(), attached_at(100s), 0ms)), ContainsSubstring("image-meta.json"));
  CHECK_THAT(why(check_stayed(staged_at(100s), VolumeAttachment(), 0ms)), ContainsSubstring("creationTimestamp"));
}

TEST_CASE("the time of a stage is judged by the API server's clock") {
  CHECK(why(check_stayed(staged_at(100s), attached_at(3700s), 3600s)) == "");
  CHECK_THAT(why(check_stayed(staged_at(3699s), attached_at(100s), -3600s)), ContainsSubstring("staged before"));
}

TEST_CASE("without the API server's clock, only a stage long after the attachment counts as ours") {
  CHECK(why(check_stayed(staged_at(400s), attached_at(100s), std::nullopt)) == "");
  CHECK_THAT(why(check_stayed(staged_at(399s), attached_at(100s), std::nullopt)),
             ContainsSubstring("no Date") && ContainsSubstring("restart kubelet"));
  CHECK_THAT(why(check_stayed(staged_at(99s), attached_at(100s), std::nullopt)), ContainsSubstring("staged before"));
}

TEST_CASE("a recorded VolumeAttachment UID decides alone whether the stage is ours, whatever the times") {
  StageTraces traces = staged_at(GENERATE(1s, 1000s));
  traces.attachment = "uid-1";
  VolumeAttachment attachment = attached_at(100s);
  attachment.uid = "uid-1";
  CHECK(why(check_stayed(traces, attachment, 0ms)) == "");
  CHECK(why(check_stayed(traces, attachment, std::nullopt)) == "");
  attachment.uid = "uid-2";
  CHECK_THAT(why(check_stayed(traces, attachment, 0ms)), ContainsSubstring("uid-1, now uid-2"));
}
