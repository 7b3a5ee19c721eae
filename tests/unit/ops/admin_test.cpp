#include <sys/stat.h>
#include <unistd.h>

#include "scene.hpp"

using namespace corbd;
using test::Scene;
using volume::Health;
using Stub = v1::Admin::Stub;
using namespace std::chrono_literals;

namespace {

using Texts = std::vector<std::string>;

v1::GetVolumeRequest volume_request(const std::string& id) {
  v1::GetVolumeRequest request;
  request.set_id(id);
  return request;
}
v1::HealRequest heal_request(const std::string& id) {
  v1::HealRequest request;
  request.set_id(id);
  return request;
}
v1::FailRequest fail_request(const std::string& id) {
  v1::FailRequest request;
  request.set_id(id);
  return request;
}

}  // namespace

TEST_CASE("the admin socket is 0600 and its folder stays as it was") {
  Scene scene;
  const std::string folder = scene.socket().substr(0, scene.socket().rfind('/'));
  REQUIRE(::chmod(folder.c_str(), 0700) == 0);
  scene.start();
  struct stat found{};
  REQUIRE(::stat(scene.socket().c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0600);
  REQUIRE(::stat(folder.c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0700);
}

TEST_CASE(
    "devices without a record are counted and listed, also where no API server tells of them; another driver's are "
    "not") {
  Scene scene;
  const std::string folder = "/var/lib/kubelet/plugins/kubernetes.io/csi/";
  scene.volumes.devices = {
      {"a",
       0,
       {folder + "rbd.csi.ceph.com/1/globalmount/a", "/var/lib/kubelet/pods/p/volumes/kubernetes.io~csi/x/mount"}},
      {"b", 1, {folder + "volumeDevices/staging/pvc-b/b"}},
      {"c", 2, {folder + "other.csi.ceph.com/1/globalmount/c"}},
      {"d", 3, {}}};
  scene.volumes.kernel_devices = {{"e", 0, {folder + "pv/pvc-e/globalmount/e"}, device::Kind::krbd}};
  scene.start();
  v1::GetStatusResponse status;
  REQUIRE(scene.call(&Stub::GetStatus, v1::GetStatusRequest(), status).ok());
  CHECK(status.unclaimed_nbd() == 3);
  CHECK(status.unclaimed_krbd() == 1);
  v1::ListVolumesResponse volumes;
  REQUIRE(scene.call(&Stub::ListVolumes, v1::ListVolumesRequest(), volumes).ok());
  Texts listed;
  for (const auto& one : volumes.unclaimed()) {
    listed.push_back((one.by_kernel() ? "rbd" : "nbd") + std::to_string(one.device()) + " " + one.volume_id());
    CHECK_THAT(one.why(), ContainsSubstring("restart kubelet"));
  }
  CHECK(listed == Texts{"nbd0 a", "nbd1 b", "nbd3 d", "rbd0 e"});
}

TEST_CASE("the status counts volumes by health and by cluster, and names the agent") {
  Scene scene;
  scene.volumes.add("1");
  scene.volumes.add("2");
  scene.volumes.add("3", Health::reconnecting).oldest = 7s;
  scene.volumes.add("4").cluster_id = "b";
  scene.stuck.push_back({"mount /dev/nbd0", 77, {}});
  scene.start();
  v1::GetStatusResponse said;
  REQUIRE(scene.call(&Stub::GetStatus, v1::GetStatusRequest(), said).ok());
  CHECK(said.version() == "1.2");
  CHECK(said.node_id() == "node-1");
  CHECK(said.pid() == ::getpid());
  REQUIRE(said.volumes_size() == 2);
  CHECK(said.volumes(0).health() == v1::HEALTH_STAGED);
  CHECK(said.volumes(0).volumes() == 3);
  CHECK(said.volumes(1).health() == v1::HEALTH_RECONNECTING);
  REQUIRE(said.clusters_size() == 2);
  CHECK(said.clusters(0).id() == "a");
  CHECK(said.clusters(0).volumes() == 3);
  CHECK(said.clusters(0).unserved() == 1);
  CHECK(said.clusters(0).oldest_request_ms() == 7000);
  CHECK_FALSE(said.clusters(0).does_not_answer());
  REQUIRE(said.stuck_helpers_size() == 1);
  CHECK(said.stuck_helpers(0).what() == "mount /dev/nbd0");
}

TEST_CASE("the status has the judgement that the probes have") {
  Scene scene;
  scene.facts.drivers[device::Kind::nbd] = Error{errc::failed_precondition, "no driver"};
  scene.facts.system_bus = {ops::Outsider::State::silent, "no bus"};
  scene.volumes.add("1", Health::reconnecting);
  scene.start();
  v1::GetStatusResponse said;
  REQUIRE(scene.call(&Stub::GetStatus, v1::GetStatusRequest(), said).ok());
  ops::NodeHealth health;
  scene.thread.call([&] { health = corbd::ops::judge(scene.server->facts(scene.volumes.overview())); });
  CHECK(said.verdict() == v1::VERDICT_CRITICAL);
  CHECK_FALSE(said.ready());
  REQUIRE(static_cast<std::size_t>(said.components_size()) == health.components.size());
  for (int i = 0; i < said.components_size(); ++i) {
    const auto& told = said.components(i);
    const auto& judged = health.components.at(static_cast<std::size_t>(i));
    CHECK(told.name() == judged.name);
    CHECK(told.text() == judged.text);
    CHECK(static_cast<int>(told.verdict()) == static_cast<int>(judged.verdict) + 1);
    CHECK(told.keeps_from_serving() == (told.name() == "nbd"));
  }
}

TEST_CASE("a drain that cannot be remembered is refused with its reason") {
  Scene scene;
  scene.set_cordoned_ends = Error{errc::state_write, "the disk is full"};
  scene.start();
  v1::DrainResponse said;
  const auto ended = scene.call(&Stub::Drain, v1::DrainRequest(), said);
  CHECK(ended.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK_THAT(ended.error_message(), ContainsSubstring("the disk is full"));
}

TEST_CASE("volumes are listed in the order of their ids") {
  Scene scene;
  for (const char* id : {"b", "c", "a"}) scene.volumes.add(id);
  scene.start();
  v1::ListVolumesResponse said;
  REQUIRE(scene.call(&Stub::ListVolumes, v1::ListVolumesRequest(), said).ok());
  Texts ids;
  for (const auto& volume : said.volumes()) ids.push_back(volume.id());
  CHECK(ids == Texts{"a", "b", "c"});
}

TEST_CASE("a volume comes with its timeline") {
  Scene scene;
  scene.volumes.add("1");
  scene.timelines["1"] = {{{}, "1", Health::absent, Health::staging, "stage"},
                          {{}, "1", Health::staging, Health::staged, "stage done"}};
  scene.start();
  v1::GetVolumeResponse said;
  REQUIRE(scene.call(&Stub::GetVolume, volume_request("1"), said).ok());
  CHECK(said.volume().id() == "1");
  REQUIRE(said.timeline_size() == 2);
  CHECK(said.timeline(1).to() == v1::HEALTH_STAGED);
  CHECK(said.timeline(1).why() == "stage done");
}

TEST_CASE("a volume that is not known is NOT_FOUND, by its name") {
  Scene scene;
  scene.start();
  v1::GetVolumeResponse seen;
  v1::HealResponse healed;
  v1::FailResponse failed;
  for (const auto& status : {scene.call(&Stub::GetVolume, volume_request("nobody"), seen),
                             scene.call(&Stub::Heal, heal_request("nobody"), healed),
                             scene.call(&Stub::Fail, fail_request("nobody"), failed)}) {
    CHECK(status.error_code() == grpc::NOT_FOUND);
    CHECK_THAT(status.error_message(), ContainsSubstring("nobody"));
  }
  CHECK(scene.volumes.asked.empty());
}

TEST_CASE("bytes of an id, an image or an error that are no UTF-8 come as question marks") {
  Scene scene;
  auto& volume = scene.volumes.add("a\xff");
  volume.image = "pool/n\xfe/i\xfd";
  volume.staged_at = {"/x\xfc"};
  volume.last_error = Error{errc::lost, "taken by \xc3"};
  scene.start();
  v1::ListVolumesResponse said;
  REQUIRE(scene.call(&Stub::ListVolumes, v1::ListVolumesRequest(), said).ok());
  REQUIRE(said.volumes_size() == 1);
  CHECK(said.volumes(0).id() == "a?");
  CHECK(said.volumes(0).namespace_() == "n?");
  CHECK(said.volumes(0).image() == "i?");
  CHECK(said.volumes(0).staged_at(0) == "/x?");
  CHECK(said.volumes(0).last_error().text() == "taken by ?");
}

TEST_CASE("healing one volume tries it now, served or not") {
  Scene scene;
  scene.volumes.add("1");
  scene.volumes.add("2", Health::reconnecting);
  scene.start();
  v1::HealResponse said;
  REQUIRE(scene.call(&Stub::Heal, heal_request("1"), said).ok());
  CHECK(said.volume_ids(0) == "1");
  scene.thread.call([&] {
    REQUIRE_FALSE(scene.volumes.asked.empty());
    for (const auto& wish : scene.volumes.asked) CHECK(wish == "heal 1");
  });
}

TEST_CASE("healing one volume ends with the try's own error") {
  Scene scene;
  scene.volumes.add("1", Health::reconnecting);
  scene.volumes.outcome = Error{errc::unproven, "the lock is free"};
  scene.start();
  v1::HealResponse said;
  const auto status = scene.call(&Stub::Heal, heal_request("1"), said);
  CHECK(status.error_code() == grpc::UNAVAILABLE);
  CHECK_THAT(status.error_message(), ContainsSubstring("the lock is free"));
}

TEST_CASE("an operator override goes with one wish for one volume, and is logged with who gave it and its result") {
  Scene scene;
  scene.volumes.add("1", Health::reconnecting);
  const bool refused = GENERATE(true, false);
  if (refused) scene.volumes.outcome = Error{errc::unproven, "it is locked by another"};
  scene.start();
  v1::HealResponse said;
  auto request = heal_request("1");
  request.set_without_proof(true);
  CHECK(scene.call(&Stub::Heal, request, said).ok() != refused);
  scene.thread.call([&] {
    CHECK(scene.volumes.asked == Texts{"heal 1 without proof"});
    CHECK(scene.overridden == Texts{"1", "uid " + std::to_string(::getuid()) + ", pid " + std::to_string(::getpid()),
                                    refused ? "it is locked by another" : ""});
  });
}

TEST_CASE("an accepted loss counts for one request, and is refused for a volume that lost nothing") {
  const bool lost = GENERATE(true, false);
  Scene scene;
  scene.volumes.add("1").cache_lost = lost;
  scene.start();
  v1::HealResponse said;
  auto request = heal_request("1");
  request.set_loss_accepted(true);
  const auto status = scene.call(&Stub::Heal, request, said);
  CHECK(status.error_code() == (lost ? grpc::OK : grpc::FAILED_PRECONDITION));
  CHECK(said.loss_accepted() == lost);
  scene.thread.call([&] {
    CHECK(scene.volumes.asked == (lost ? Texts{"heal 1, loss accepted"} : Texts{}));
    CHECK(scene.overridden.empty() != lost);
  });
}

TEST_CASE("an operator override of all volumes, or of one that rbd-nbd is to leave, is refused") {
  Scene scene;
  scene.volumes.add("1", Health::reconnecting);
  scene.start();
  v1::HealResponse said;
  auto request = heal_request(GENERATE("", "1"));
  request.set_without_proof(true);
  if (!request.id().empty()) request.set_adopt(true);
  CHECK(scene.call(&Stub::Heal, request, said).error_code() == grpc::INVALID_ARGUMENT);
  scene.thread.call([&] { CHECK(scene.volumes.asked.empty()); });
}

TEST_CASE("healing all tries those without a server, and does not wait for them") {
  Scene scene;
  scene.volumes.add("1");
  scene.volumes.add("2", Health::reconnecting);
  scene.volumes.add("3", Health::reconnecting);
  scene.volumes.held = true;
  scene.start();
  v1::HealResponse said;
  REQUIRE(scene.call(&Stub::Heal, heal_request(""), said).ok());
  CHECK(Texts(said.volume_ids().begin(), said.volume_ids().end()) == Texts{"2", "3"});
  scene.thread.call([&] { CHECK(scene.volumes.asked == Texts{"heal 2", "heal 3"}); });
}

TEST_CASE("a volume whose try failed shows how often, when the next comes and why") {
  Scene scene;
  scene.volumes.add("1", Health::reconnecting);
  scene.volumes.outcome = Error{errc::in_use, "a foreign watcher"};
  scene.start();
  scene.thread.call([&] { scene.healer.report_failure("1", "its link died"); });
  v1::GetVolumeResponse said;
  while (said.volume().healing().attempts() == 0) REQUIRE(scene.call(&Stub::GetVolume, volume_request("1"), said).ok());
  CHECK(said.volume().healing().why() == "its link died");
  CHECK(said.volume().healing().next_try_ms() <= 1000);
  CHECK_FALSE(said.volume().healing().waits_for_cluster());
}

TEST_CASE("a cluster that gave no answer is shown as such, with the volumes that wait for it") {
  Scene scene;
  scene.volumes.add("1", Health::reconnecting);
  scene.volumes.outcome = Error{errc::unreachable, "no monitor answers"};
  scene.start();
  scene.thread.call([&] { scene.healer.report_failure("1", "its link died"); });
  v1::GetStatusResponse said;
  do {
    REQUIRE(scene.call(&Stub::GetStatus, v1::GetStatusRequest(), said).ok());
  } while (!said.clusters(0).does_not_answer());
  v1::GetVolumeResponse seen;
  REQUIRE(scene.call(&Stub::GetVolume, volume_request("1"), seen).ok());
  CHECK(seen.volume().healing().waits_for_cluster());
}

TEST_CASE("failing a volume asks for it and says when it could not be done") {
  Scene scene;
  scene.volumes.add("1");
  scene.volumes.outcome = GENERATE(result<>(), result<>(Error{errc::busy, "another operation"}));
  scene.start();
  v1::FailResponse said;
  CHECK(scene.call(&Stub::Fail, fail_request("1"), said).ok() == scene.volumes.outcome.has_value());
  scene.thread.call([&] { CHECK(scene.volumes.asked == Texts{"fail 1"}); });
}

TEST_CASE("a caller that waits for a volume learns at once that the agent leaves") {
  Scene scene;
  scene.volumes.add("1");
  scene.volumes.held = true;
  scene.start();
  v1::FailResponse said;
  auto waiting = std::async(std::launch::async, [&] { return scene.call(&Stub::Fail, fail_request("1"), said, 60s); });
  for (bool asked = false; !asked;) scene.thread.call([&] { asked = !scene.volumes.asked.empty(); });
  scene.stop();
  const auto status = waiting.get();
  CHECK(status.error_code() == grpc::UNAVAILABLE);
  CHECK_THAT(status.error_message(), ContainsSubstring("stopping"));
}
