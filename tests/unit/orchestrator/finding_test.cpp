// What makes a device one of this node's volumes.
#include <sys/stat.h>

#include <boost/json/parse.hpp>
#include <fstream>

#include "corbd/orchestrator/attachments.hpp"
#include "corbd/orchestrator/finder.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
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
  return made;
}

kube::VolumeAttachment attachment(const std::string& text) {
  return kube::volume_attachment_of(boost::json::parse(text).as_object());
}
Attachment judged(const std::string& text) {
  return orchestrator::judge(attachment(text), {"rbd.csi.ceph.com", "node-1"});
}

}  // namespace

TEST_CASE("a volume is looked for where kubelet stages it, both since 1.24 and before") {
  CHECK(*orchestrator::staging_path_of(a_volume(), "/k/plugins", {"/elsewhere", kHashed + "/" + kHandle}) == kHashed);
  CHECK(*orchestrator::staging_path_of(a_volume(), "/k/plugins", {kBelow + "pv/pv-1/globalmount/" + kHandle}) ==
        kBelow + "pv/pv-1/globalmount");
}

TEST_CASE("a block volume is looked for by the volume's mode, at its own path") {
  auto block = a_volume();
  block.mode = "Block";
  CHECK(*orchestrator::staging_path_of(block, "/k/plugins", {kBelow + "volumeDevices/staging/pv-1/" + kHandle}) ==
        kBelow + "volumeDevices/staging/pv-1");
}

TEST_CASE("a device that is mounted at no staging path is left to kubelet") {
  const auto found = orchestrator::staging_path_of(a_volume(), "/k/plugins", {"/k/pods/p/mount"});
  REQUIRE_FALSE(found);
  CHECK(found.error().code == errc::not_found);
}

TEST_CASE("the time of the stash and kubelet's SELinux context are read beside the staging path") {
  test::Folder folder;
  const std::string path = folder.path() + "/globalmount";
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  std::ofstream(path + "/image-meta.json") << "{}";
  std::ofstream(folder.path() + "/vol_data.json")
      << R"({"driverName":"d","seLinuxMountContext":"system_u:object_r:container_file_t:s0:c1,c2"})";
  const auto traces = orchestrator::read_traces(path);
  REQUIRE(traces);
  CHECK(traces->staged);
  CHECK(traces->selinux_context == "system_u:object_r:container_file_t:s0:c1,c2");
  std::ofstream(folder.path() + "/vol_data.json") << "[";
  CHECK(orchestrator::read_traces(path)->selinux_context == "");
  CHECK_FALSE(orchestrator::read_traces(folder.path() + "/none")->staged);
}

TEST_CASE("the VolumeAttachment of the stash is read, and of a stash that is damaged none") {
  test::Folder folder;
  std::ofstream(folder.path() + "/image-meta.json") << R"({"Version":3,"image":"i","corbdAttachmentUID":"uid-1"})";
  CHECK(orchestrator::read_traces(folder.path())->attachment == "uid-1");
  std::ofstream(folder.path() + "/image-meta.json") << R"({"Version":3,"corbdAttachmentUID":"ui)";
  CHECK(orchestrator::read_traces(folder.path())->attachment == "");
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

TEST_CASE("a missing VolumeAttachment means that the volume is not here, and a silent API server means nothing") {
  const auto judged = [](errc code) {
    return orchestrator::judge(kube::ApiError{kube::ApiError::Kind::other, {code, "why"}, std::nullopt},
                               {"rbd.csi.ceph.com", "node-1"});
  };
  CHECK(judged(errc::not_found).state == State::away);
  CHECK(judged(errc::unavailable).state == State::unknown);
  CHECK(judged(errc::permission_denied) == Attachment{State::unknown, "", "why"});
}
