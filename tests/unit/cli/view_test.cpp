#include "view.hpp"

#include <boost/json/serialize.hpp>

#include "corbd/rpc/json.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::cli;

namespace {

constexpr std::int64_t kNow = 1769860800000;  // 2026-01-31T12:00:00Z

v1::Volume staged(const std::string& id) {
  v1::Volume volume;
  volume.set_id(id);
  volume.set_health(v1::HEALTH_STAGED);
  volume.set_since_at_ms(kNow - 200000);
  volume.set_pool("pool");
  volume.set_image("image");
  volume.set_device(3);
  return volume;
}

}  // namespace

TEST_CASE("a volume's state is printed with the log's word, and an unknown state with its number") {
  CHECK(word(v1::HEALTH_RECONNECTING) == "reconnecting");
  CHECK(word(static_cast<v1::Health>(99)) == "99");
}

TEST_CASE("the exit code follows the agent's verdict, and is that of a warning if an older agent gives none") {
  v1::GetStatusResponse status;
  CHECK(exit_code(status) == 1);
  for (const auto& [verdict, code, said] :
       {std::tuple(v1::VERDICT_OK, 0, "OK"), std::tuple(v1::VERDICT_WARNING, 1, "Warning"),
        std::tuple(v1::VERDICT_CRITICAL, 2, "Critical")}) {
    status.set_verdict(verdict);
    CHECK(exit_code(status) == code);
    CHECK(word(verdict) == said);
  }
}

TEST_CASE("a volume over a lost cache says so in its state, and its page names both ways out") {
  v1::ListVolumesResponse all;
  *all.add_volumes() = staged("image-1");
  all.mutable_volumes(0)->set_cache_lost(true);
  CHECK_THAT(volumes_table(all, false, kNow), ContainsSubstring("staged,cache-lost "));
  v1::GetVolumeResponse one;
  *one.mutable_volume() = all.volumes(0);
  CHECK_THAT(volume_page(one, kNow), ContainsSubstring("staged,cache-lost since") &&
                                         ContainsSubstring("unstaged, or until `corbd heal image-1 --loss-accepted`"));
  one.mutable_volume()->set_cache_lost(false);
  CHECK_THAT(volume_page(one, kNow), !ContainsSubstring("cache-lost"));
}

TEST_CASE("an agent that gives no verdict is reported as older, with the advice to restart it") {
  v1::GetStatusResponse status;
  status.set_version("0.9");
  CHECK_THAT(status_screen(status), ContainsSubstring("corbd 0.9 is older than this program") &&
                                        ContainsSubstring("restart it") && ContainsSubstring("Overall: Warning\n"));
}

TEST_CASE("the status screen has the agent's verdict on each component, and the overall verdict") {
  v1::GetStatusResponse status;
  status.set_version("1.2");
  status.set_node_id("node-1");
  status.set_pid(12);
  status.set_uptime_ms(200000);
  status.set_ready(true);
  status.set_verdict(v1::VERDICT_CRITICAL);
  const auto add = [&](const char* name, v1::Verdict verdict, const char* text) {
    auto* one = status.add_components();
    one->set_name(name);
    one->set_verdict(verdict);
    one->set_text(text);
  };
  add("agent", v1::VERDICT_OK, "stages and serves volumes");
  add("volumes", v1::VERDICT_WARNING, "2 reconnecting");
  add("cluster a", v1::VERDICT_CRITICAL, "a\nb");
  CHECK(status_screen(status) ==
        "COMPONENT   VERDICT    DETAILS\n"
        "agent       OK         corbd 1.2 on node node-1, pid 12, up 3m20s; stages and serves volumes\n"
        "volumes     Warning    2 reconnecting\n"
        "cluster a   Critical   a?b\n"
        "\n"
        "Overall: Critical\n");
}

TEST_CASE("the volume table begins with the columns of `rbd device list`, followed by the state") {
  v1::ListVolumesResponse volumes;
  *volumes.add_volumes() = staged("v1");
  CHECK(
      volumes_table(volumes, false, kNow) ==
      "ID   POOL   NAMESPACE   IMAGE   DEVICE      STATE    SERVED-BY   SINCE   LINKS-LOST   LONGEST-STALL   PVC\n"
      "v1   pool   <none>      image   /dev/nbd3   staged   corbd       3m20s   0            0s              <none>\n");
}

TEST_CASE("the volume tables show whether this agent, rbd-nbd, the kernel or nobody serves a volume") {
  const auto shown = [](auto change) {
    v1::ListVolumesResponse volumes;
    change(*volumes.add_volumes() = staged("v1"));
    return volumes_table(volumes, GENERATE(true, false), kNow);
  };
  CHECK_THAT(shown([](v1::Volume&) {}), ContainsSubstring("staged   corbd "));
  CHECK_THAT(shown([](v1::Volume& one) { one.set_served_by_other(true); }), ContainsSubstring("staged   rbd-nbd "));
  CHECK_THAT(shown([](v1::Volume& one) { one.set_by_kernel(true); }), ContainsSubstring("staged   kernel "));
  CHECK_THAT(shown([](v1::Volume& one) { one.set_unserved(true); }), ContainsSubstring("staged   <none> "));
  CHECK_THAT(shown([](v1::Volume& one) { one.clear_device(); }), ContainsSubstring("staged   <none> "));
}

TEST_CASE("the volume table lists unclaimed devices with their volume IDs and the reason") {
  v1::ListVolumesResponse volumes;
  auto* device = volumes.add_unclaimed();
  device->set_volume_id("v7");
  device->set_device(4);
  device->set_why("because");
  CHECK_THAT(volumes_table(volumes, false, kNow), ContainsSubstring("/dev/nbd4   v7       because\n"));
}

TEST_CASE("a device is shown with the path that its agent reports") {
  v1::ListVolumesResponse volumes;
  *volumes.add_volumes() = staged("v1");
  volumes.mutable_volumes(0)->set_device_path("/dev/other3");
  volumes.add_unclaimed()->set_device_path("/dev/other4");
  CHECK_THAT(volumes_table(volumes, false, kNow), ContainsSubstring("/dev/other3") && ContainsSubstring("/dev/other4"));
}

TEST_CASE("a device of the kernel client is shown as /dev/rbdN even if an older agent reports no path") {
  v1::ListVolumesResponse volumes;
  auto* volume = volumes.add_volumes();
  *volume = staged("v1");
  volume->set_by_kernel(true);
  CHECK_THAT(volumes_table(volumes, false, kNow), ContainsSubstring("/dev/rbd3"));
}

TEST_CASE("the wide table adds pods, size, paths, attempts and the last error") {
  v1::ListVolumesResponse volumes;
  auto* volume = volumes.add_volumes();
  *volume = staged("v1");
  volume->clear_device();
  volume->set_size_bytes(1 << 30);
  volume->add_staged_at("/s");
  volume->add_published_at("/p");
  volume->add_published_at("/q");
  volume->set_pvc("data");
  volume->set_pvc_namespace("shop");
  volume->add_pods("shop/db-0");
  volume->mutable_healing()->set_attempts(4);
  volume->mutable_last_error()->set_code("lost");
  volume->mutable_last_error()->set_text("gone");
  const auto text = volumes_table(volumes, true, kNow);
  CHECK_THAT(text,
             ContainsSubstring("PVC         PODS        SIZE    STAGED-AT   PUBLISHED-AT   ATTEMPTS   LAST-ERROR\n"));
  CHECK_THAT(text,
             ContainsSubstring("shop/data   shop/db-0   1 GiB   /s          /p,/q          4          lost: gone\n"));
  CHECK_THAT(text, ContainsSubstring("image   <none>   staged"));
}

TEST_CASE("a volume's page shows its state, how long it has been unserved, the failed attempts and the timeline") {
  v1::GetVolumeResponse response;
  auto* volume = response.mutable_volume();
  *volume = staged("v1");
  volume->set_namespace_("space");
  volume->set_health(v1::HEALTH_RECONNECTING);
  volume->set_unserved(true);
  volume->set_unserved_ms(200000);
  volume->set_waiting(3);
  volume->mutable_healing()->set_attempts(1);
  volume->mutable_healing()->set_next_try_ms(5000);
  volume->mutable_healing()->set_why("its link died");
  auto* change = response.add_timeline();
  change->set_at_ms(kNow);
  change->set_from(v1::HEALTH_STAGED);
  change->set_to(v1::HEALTH_RECONNECTING);
  change->set_why("its link died");
  const auto text = volume_page(response, kNow);
  CHECK_THAT(text, ContainsSubstring("reconnecting since 2026-01-31T11:56:40Z (3m20s)\n"));
  CHECK_THAT(text, ContainsSubstring("pool/space/image\n"));
  CHECK_THAT(text, ContainsSubstring("none for 3m20s, 3 requests in the kernel's queue\n"));
  CHECK_THAT(text, ContainsSubstring("1 failed attempt, the next in 5s; reason: its link died\n"));
  CHECK_THAT(text, ContainsSubstring("2026-01-31T12:00:00Z   staged   reconnecting   its link died\n"));
}

TEST_CASE("the page of a volume whose device is gone says that the kernel has no device for it") {
  v1::GetVolumeResponse response;
  auto* volume = response.mutable_volume();
  *volume = staged("v1");
  volume->set_device(3);
  volume->set_health(v1::HEALTH_ABSENT);
  CHECK_THAT(volume_page(response, kNow), ContainsSubstring("none: the kernel has no device for it"));
}

TEST_CASE("the page of a volume that waits for its cluster says so, and gives no time for the next attempt") {
  v1::GetVolumeResponse response;
  auto& healing = *response.mutable_volume()->mutable_healing();
  healing.set_next_try_ms(5000);
  CHECK_THAT(volume_page(response, kNow), ContainsSubstring("the next in 5s"));
  healing.set_waits_for_cluster(true);
  CHECK_THAT(volume_page(response, kNow),
             ContainsSubstring("waits until its cluster answers") && !ContainsSubstring("the next"));
}

TEST_CASE("the page of a volume whose pool is full says that it waits for room, and not for its cluster") {
  v1::GetVolumeResponse response;
  response.mutable_volume()->mutable_healing()->set_waits_for_cluster(true);
  response.mutable_volume()->mutable_last_error()->set_code("pool_full");
  CHECK_THAT(volume_page(response, kNow),
             ContainsSubstring("waits until its pool has room") && !ContainsSubstring("its cluster"));
}

TEST_CASE("an event is printed on one line even if its reason contains a line break") {
  v1::Change change;
  change.set_at_ms(kNow);
  change.set_volume_id("v1");
  change.set_from(v1::HEALTH_STAGED);
  change.set_to(v1::HEALTH_LOST);
  change.set_why("a\nb");
  CHECK(event_line(change) == "2026-01-31T12:00:00Z   v1   staged -> lost   a?b");
}

TEST_CASE("the JSON has every field by its name, numbers as numbers, and null for absent fields") {
  auto volume = staged("v1");
  volume.set_size_bytes(1ULL << 40);
  volume.add_staged_at("/s");
  const auto json = rpc::json_of(volume);
  CHECK(json.at("id").as_string() == "v1");
  CHECK(json.at("health").as_string() == "staged");
  CHECK(json.at("size_bytes").as_uint64() == 1ULL << 40);
  CHECK(json.at("device").as_uint64() == 3);
  CHECK(json.at("last_error").is_null());
  CHECK(json.at("healing").is_null());
  CHECK(boost::json::serialize(json.at("staged_at")) == "[\"/s\"]");
  CHECK(json.size() == static_cast<std::size_t>(v1::Volume::descriptor()->field_count()));
}

TEST_CASE("a JSON document begins with the version of its schema") {
  CHECK(boost::json::serialize(rpc::document({{"a", 1}})) == "{\"schema_version\":1,\"a\":1}");
}

TEST_CASE("the page of a volume says which OSDs answer its reads") {
  v1::GetVolumeResponse response;
  *response.mutable_volume() = staged("v1");
  for (const auto& [policy, said] :
       {std::pair("primary", "the primary OSD\n"), std::pair("balance", "any OSD that has the data (balance)\n"),
        std::pair("localize", "the nearest OSD (localize)\n"), std::pair("", "<none>\n")}) {
    response.mutable_volume()->set_reads(policy);
    CHECK_THAT(volume_page(response, kNow), ContainsSubstring(said));
  }
}
