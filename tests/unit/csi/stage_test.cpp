#include "corbd/csi/stage.hpp"

#include "requests.hpp"
#include "support/catch.hpp"

using namespace corbd;
using corbd::csi::stage_credential;
using corbd::csi::stage_wish;
using corbd::csi::wish_of;
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

TEST_CASE(
    "a stage wish from the API server's objects has their path, mount flags, user and key, and no filesystem type of "
    "its own") {
  const auto made = stage_wish(arguments());
  REQUIRE(made);
  const auto& wish = std::get<Staged>(*made);
  CHECK(wish.path == "/k/globalmount");
  CHECK(wish.capability.fstype.empty());
  CHECK(wish.capability.mount_flags == "discard,context=\"a,b\"");
  CHECK(wish.credential.user == "user");
  CHECK(wish.credential.key.reveal() == "key");
}

// behind Y6
TEST_CASE("white space at the end of a Ceph key is left out, and anywhere else it is refused") {
  CHECK(stage_credential({{"userID", Secret("user")}, {"userKey", Secret("key==\r\n")}})->key == Secret("key=="));
  CHECK(stage_credential({{"key", Secret("key==\n")}})->key == Secret("key=="));
  for (const auto& [user, key] : {std::pair("user\n", "key"), {"user", "k ey"}, {"user", "\nkey"}, {"user", "\n"}})
    CHECK(
        stage_credential({{"userID", Secret(std::string(user))}, {"userKey", Secret(std::string(key))}}).error().code ==
        errc::invalid_argument);
}

TEST_CASE("the API server's objects become the stage wish that a call of kubelet would make") {
  auto objects = arguments();
  objects.fstype = "xfs";
  objects.volume_context.insert({{"mapOptions", "nbd:notrim"}, {"csi.storage.k8s.io/pvc/name", "data"}});
  objects.secrets["encryptionPassphrase"] = Secret("phrase");
  ::csi::v1::NodeStageVolumeRequest call;
  call.set_volume_id(objects.volume_id);
  call.set_staging_target_path("/k/globalmount");
  auto& capability = *call.mutable_volume_capability();
  capability.mutable_access_mode()->set_mode(::csi::v1::VolumeCapability::AccessMode::SINGLE_NODE_MULTI_WRITER);
  capability.mutable_mount()->set_fs_type("xfs");
  for (const char* flag : {"discard", "context=\"a,b\""}) capability.mutable_mount()->add_mount_flags(flag);
  for (const auto& [name, value] : objects.volume_context) (*call.mutable_volume_context())[name] = value;
  for (const auto& [name, secret] : objects.secrets) (*call.mutable_secrets())[name] = std::string(secret.reveal());
  const auto made = stage_wish(objects), called = wish_of(call);
  REQUIRE(made);
  REQUIRE(called);
  CHECK((std::get<Staged>(*made) == std::get<Staged>(*called)));
}

TEST_CASE("the access mode of a PersistentVolume decides how its volume is used, and an unknown mode is refused") {
  CHECK(std::get<Staged>(*stage_wish(arguments("ReadWriteOncePod"))).capability.single_writer);
  CHECK(std::get<Staged>(*stage_wish(arguments("ReadOnlyMany"))).capability.read_only);
  auto shared = arguments("ReadWriteMany");
  shared.block = true;
  CHECK(std::get<Staged>(*stage_wish(shared)).capability.shared);
  CHECK(stage_wish(arguments("ReadSometimes")).error().code == errc::invalid_argument);
}

TEST_CASE("a stage wish from the API server's objects uses nbd, whatever mounter the attributes name") {
  auto named = arguments();
  named.volume_context["mounter"] = GENERATE("", "rbd", "rbd-nbd");
  CHECK(std::get<Staged>(*stage_wish(named)).mounter == cephcsi::Mounter::nbd);
}

TEST_CASE("a secret without a key is refused, as in a call of kubelet") {
  auto empty = arguments();
  empty.secrets.erase("userKey");
  CHECK(stage_wish(empty).error().code == errc::invalid_argument);
}
