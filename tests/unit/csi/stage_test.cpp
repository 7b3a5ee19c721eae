#include "corbd/csi/stage.hpp"

#include "support/catch.hpp"

using namespace corbd;
using plan::Staged;

namespace {

orchestrator::StageArguments arguments(const std::string& access_mode = "ReadWriteOnce") {
  orchestrator::StageArguments made;
  made.volume_id = "0001-0009-rook-ceph-0000000000000001-15df6447-688b-11ea-9afc-1ed3ac041a33";
  made.staging_path = "/k/globalmount";
  made.access_mode = access_mode;
  made.mount_flags = {"discard", "context=\"a,b\""};
  made.volume_context = {{"clusterID", "rook-ceph"}, {"pool", "p"}};
  made.secrets = {{"userID", Secret("user")}, {"userKey", Secret("key")}};
  return made;
}

}  // namespace

TEST_CASE("the API server's objects become the stage wish that a call of kubelet would make") {
  const auto made = csi::stage_wish(arguments());
  REQUIRE(made);
  const auto& wish = std::get<Staged>(*made);
  CHECK(wish.path == "/k/globalmount");
  CHECK(wish.capability.fstype == "ext4");
  CHECK(wish.capability.mount_flags == "discard,context=\"a,b\"");
  CHECK(wish.user == "user");
  CHECK(wish.key.reveal() == "key");
}

TEST_CASE("the access mode of a PersistentVolume decides how its volume is used, and an unknown mode is refused") {
  CHECK(std::get<Staged>(*csi::stage_wish(arguments("ReadWriteOncePod"))).capability.single_writer);
  CHECK(std::get<Staged>(*csi::stage_wish(arguments("ReadOnlyMany"))).capability.read_only);
  auto shared = arguments("ReadWriteMany");
  shared.block = true;
  CHECK(std::get<Staged>(*csi::stage_wish(shared)).capability.shared);
  CHECK(csi::stage_wish(arguments("ReadSometimes")).error().code == errc::invalid_argument);
}

TEST_CASE("a stage wish from the API server's objects uses nbd, whatever mounter the attributes name") {
  auto named = arguments();
  named.volume_context["mounter"] = GENERATE("", "rbd", "rbd-nbd");
  CHECK(std::get<Staged>(*csi::stage_wish(named)).mounter == cephcsi::Mounter::nbd);
}

TEST_CASE("a secret without a key is refused, as in a call of kubelet") {
  auto empty = arguments();
  empty.secrets.erase("userKey");
  CHECK(csi::stage_wish(empty).error().code == errc::invalid_argument);
}
