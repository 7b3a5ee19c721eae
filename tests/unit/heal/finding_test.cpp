// What makes a device one of this node's volumes.
#include <sys/stat.h>

#include <boost/json/parse.hpp>
#include <fstream>

#include "corbd/heal/attachments.hpp"
#include "corbd/heal/finder.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using heal::Traces;
using plan::Attachment;
using State = Attachment::State;

namespace {

const std::string kHandle = "0001-0009-rook-ceph-0000000000000001-15df6447-688b-11ea-9afc-1ed3ac041a33";
const std::string kBelow = "/k/plugins/kubernetes.io/csi/";
const std::string kHashed =
    kBelow + "rbd.csi.ceph.com/67226b6a279abf7e6e937d49a5a0449b2f14be0d6e7e6eaeeef917edefefcbe1/globalmount";

kube::PersistentVolume a_volume() {
  kube::PersistentVolume made;
  made.name = "pv-1";
  made.driver = "rbd.csi.ceph.com";
  made.handle = kHandle;
  made.bound = true;
  made.access_modes = {"ReadWriteOnce"};
  made.node_stage_secret = kube::Reference{"secret", "ceph"};
  return made;
}

std::string why(const result<>& checked) { return checked ? "" : checked.error().text; }
std::string why_not(kube::PersistentVolume of) { return why(heal::check(of, "rbd.csi.ceph.com", kHandle)); }

kube::VolumeAttachment attachment(const std::string& text) {
  return kube::volume_attachment_of(boost::json::parse(text).as_object());
}
Attachment judged(const std::string& text) { return heal::judge(attachment(text), "rbd.csi.ceph.com", "node-1"); }

/// Since 1970, by either clock.
std::chrono::system_clock::time_point clock_at(std::chrono::milliseconds since) {
  return std::chrono::system_clock::time_point(since);
}
Traces staged_at(std::chrono::milliseconds since) {
  Traces traces;
  traces.staged = clock_at(since);
  return traces;
}
kube::VolumeAttachment attached_at(std::chrono::milliseconds since) {
  kube::VolumeAttachment attachment;
  attachment.created = clock_at(since);
  return attachment;
}

}  // namespace

TEST_CASE("a volume is looked for where kubelets stage it, from 1.24 on and before") {
  CHECK(*heal::staging_path_of(a_volume(), "/k", {"/elsewhere", kHashed + "/" + kHandle}) == kHashed);
  CHECK(*heal::staging_path_of(a_volume(), "/k", {kBelow + "pv/pv-1/globalmount/" + kHandle}) ==
        kBelow + "pv/pv-1/globalmount");
}

TEST_CASE("a block volume is looked for by the volume's mode, at its own path") {
  auto block = a_volume();
  block.mode = "Block";
  CHECK(*heal::staging_path_of(block, "/k", {kBelow + "volumeDevices/staging/pv-1/" + kHandle}) ==
        kBelow + "volumeDevices/staging/pv-1");
}

TEST_CASE("a device that is mounted at none of them is left to kubelet") {
  const auto found = heal::staging_path_of(a_volume(), "/k", {"/k/pods/p/mount"});
  REQUIRE_FALSE(found);
  CHECK(found.error().code == errc::not_found);
}

TEST_CASE(
    "a PersistentVolume that is not this driver's, bound, with this handle and a secret is refused by what it is "
    "instead") {
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
  other.deleting = true;
  CHECK_THAT(why_not(other), ContainsSubstring("deleted"));
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

TEST_CASE("what was staged before the volume was attached as it is now is not taken for ours") {
  CHECK(why(heal::check(staged_at(100s), attached_at(100s), 0ms)) == "");
  CHECK_THAT(why(heal::check(staged_at(99999ms), attached_at(100s), 0ms)), ContainsSubstring("staged before"));
}

TEST_CASE("without a stash, or the time of its VolumeAttachment, a volume is not taken for ours") {
  CHECK_THAT(why(heal::check(Traces(), attached_at(100s), 0ms)), ContainsSubstring("image-meta.json"));
  CHECK_THAT(why(heal::check(staged_at(100s), kube::VolumeAttachment(), 0ms)), ContainsSubstring("creationTimestamp"));
}

TEST_CASE("when it was staged counts by the API server's clock") {
  CHECK(why(heal::check(staged_at(100s), attached_at(3700s), 3600s)) == "");
  CHECK_THAT(why(heal::check(staged_at(3699s), attached_at(100s), -3600s)), ContainsSubstring("staged before"));
}

TEST_CASE("without the API server's clock only what was staged long after its attachment is taken for ours") {
  CHECK(why(heal::check(staged_at(400s), attached_at(100s), std::nullopt)) == "");
  CHECK_THAT(why(heal::check(staged_at(399s), attached_at(100s), std::nullopt)),
             ContainsSubstring("no Date") && ContainsSubstring("restart kubelet"));
  CHECK_THAT(why(heal::check(staged_at(99s), attached_at(100s), std::nullopt)), ContainsSubstring("staged before"));
}

TEST_CASE("a VolumeAttachment's UID beside the volume proves or refutes by itself, whatever the times") {
  Traces traces = staged_at(GENERATE(1s, 1000s));
  traces.attachment = "uid-1";
  kube::VolumeAttachment attachment = attached_at(100s);
  attachment.uid = "uid-1";
  CHECK(why(heal::check(traces, attachment, 0ms)) == "");
  CHECK(why(heal::check(traces, attachment, std::nullopt)) == "");
  attachment.uid = "uid-2";
  CHECK_THAT(why(heal::check(traces, attachment, 0ms)), ContainsSubstring("uid-1, now uid-2"));
}

TEST_CASE("the time of the stash and kubelet's SELinux context are read beside the staging path") {
  test::Folder folder;
  const std::string path = folder.path() + "/globalmount";
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  std::ofstream(path + "/image-meta.json") << "{}";
  std::ofstream(folder.path() + "/vol_data.json")
      << R"({"driverName":"d","seLinuxMountContext":"system_u:object_r:container_file_t:s0:c1,c2"})";
  const auto traces = heal::read_traces(path);
  REQUIRE(traces);
  CHECK(traces->staged);
  CHECK(traces->selinux_context == "system_u:object_r:container_file_t:s0:c1,c2");
  std::ofstream(folder.path() + "/vol_data.json") << "[";
  CHECK(heal::read_traces(path)->selinux_context == "");
  CHECK_FALSE(heal::read_traces(folder.path() + "/none")->staged);
}

TEST_CASE("the VolumeAttachment of the stash is read, and of a stash that is damaged none") {
  test::Folder folder;
  std::ofstream(folder.path() + "/image-meta.json") << R"({"Version":3,"image":"i","corbdAttachmentUID":"uid-1"})";
  CHECK(heal::read_traces(folder.path())->attachment == "uid-1");
  std::ofstream(folder.path() + "/image-meta.json") << R"({"Version":3,"corbdAttachmentUID":"ui)";
  CHECK(heal::read_traces(folder.path())->attachment == "");
}

TEST_CASE("only a VolumeAttachment that is attached and stays so says that a volume is here") {
  const std::string spec = R"("spec":{"attacher":"rbd.csi.ceph.com","nodeName":"node-1"})";
  const std::string status = R"("status":{"attached":true})";
  CHECK(judged(R"({"metadata":{"uid":"u"},)" + spec + "," + status + "}") == Attachment{State::here, "u", ""});
  CHECK(judged(R"({"metadata":{"uid":"u"},)" + spec + R"(,"status":{"attached":false}})").state == State::unknown);
  CHECK(judged(R"({"metadata":{"uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z"},)" + spec + "," + status + "}")
            .state == State::unknown);
  CHECK(judged(R"({"metadata":{},)" + spec + "," + status + "}").state == State::unknown);
  CHECK(judged("{}").state == State::away);
  CHECK(judged(R"({"metadata":{"uid":"u"},"spec":{"attacher":"rbd.csi.ceph.com","nodeName":"node-2"},)" + status + "}")
            .state == State::away);
}

TEST_CASE(
    "a VolumeAttachment that is gone says that the volume is not here, a server that does not answer says nothing") {
  const auto judged = [](errc code) {
    return heal::judge(kube::Failure{kube::Failure::Kind::other, {code, "why"}, std::nullopt}, "rbd.csi.ceph.com",
                       "node-1");
  };
  CHECK(judged(errc::not_found).state == State::away);
  CHECK(judged(errc::unavailable).state == State::unknown);
  CHECK(judged(errc::permission_denied) == Attachment{State::unknown, "", "why"});
}
