// What the doctor reads on a node. A folder stands in for the host's root, and a scripted server for the API server.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "corbd/core/base64.hpp"
#include "corbd/core/file.hpp"
#include "inputs.hpp"
#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "unit/host/ground.hpp"

using namespace corbd;
using namespace corbd::migration;
namespace fs = std::filesystem;

namespace {

const std::string kDriver = "rbd.csi.ceph.com";
const std::string kCsi = "/var/lib/kubelet/plugins/kubernetes.io/csi";

/// A host's root folder.
class HostFolder {
 public:
  HostFolder() {
    for (const char* name : {"/proc/1", "/sys/block", "/sys/dev/block", "/sys/bus/rbd/devices", "/var/lib/kubelet/pods",
                             "/var/lib/kubelet/plugins", "/config"})
      fs::create_directories(folder_.path() + name);
    put("/config/config.json", R"([{"clusterID":"prod","monitors":["m1"]}])");
    put("/proc/1/mountinfo", "");
  }
  std::string at(const std::string& path) const { return folder_.path() + path; }
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(at(path)).parent_path());
    std::ofstream(at(path)) << text;
  }
  void mount(const std::string& dev, const std::string& root, const std::string& target, const std::string& type,
             const std::string& source) const {
    std::ofstream file(at("/proc/1/mountinfo"), std::ios::app);
    file << "36 35 " << dev << " " << root << " " << target << " rw shared:1 - " << type << " " << source << " rw\n";
  }
  void block(const std::string& name, const std::string& dev) const {
    put("/sys/block/" + name + "/dev", dev + "\n");
    fs::create_symlink("../../block/" + name, at("/sys/dev/block/" + dev));
  }
  ForecastInputs gathered() const {
    Options options;
    options.root = folder_.path();
    options.kubelet_dir = "/var/lib/kubelet";
    options.config_dir = options.kms_config_dir = at("/config");
    options.state_dir = "/state";
    options.driver = kDriver;
    options.admin_endpoint = "unix://" + at("/admin.sock");
    options.default_mounter = cephcsi::Mounter::krbd;
    return gather(options);
  }

 private:
  const test::Folder folder_;
};

constexpr const char* kStash =
    R"({"Version":3,"pool":"rbd","radosNamespace":"","image":"csi-vol-1","unmapOptions":"","accessType":true,"encrypted":false,"device":"/dev/nbd0","logDir":"","logFileStrategy":""})";

std::string data_of(const std::string& handle, const std::string& volume = "") {
  return R"({"driverName":")" + kDriver + R"(","volumeHandle":")" + handle + R"(","specVolID":")" + volume + R"("})";
}

}  // namespace

TEST_CASE("a staged filesystem is found with its volume ID, stash, device, server and PersistentVolume") {
  const HostFolder host;
  const std::string sha = kCsi + "/" + kDriver + "/" + sha256_hex("v1");
  host.put(sha + "/vol_data.json", data_of("v1"));
  host.put(sha + "/globalmount/image-meta.json", kStash);
  host.mount("43:0", "/", sha + "/globalmount/v1", "ext4", "/dev/nbd0");
  host.block("nbd0", "43:0");
  host.put("/sys/block/nbd0/backend", "v1\n");
  host.put("/sys/block/nbd0/pid", "77\n");
  host.put("/sys/block/nbd0/inflight", "       1        2\n");
  host.put("/proc/77/comm", "rbd-nbd\n");
  host.put("/proc/77/cmdline", std::string("rbd-nbd\0map\0", 12));
  host.put("/proc/77/status", "CapEff:\t000001ffffffffff\n");
  for (const char* process : {"self", "77"}) host.put("/proc/" + std::string(process) + "/uid_map", "0 0 4294967295\n");
  host.put("/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pvc-1/vol_data.json", data_of("v1", "pvc-1"));
  const auto inputs = host.gathered();
  REQUIRE(inputs.staged.size() == 1);
  const auto& at = inputs.staged[0];
  CHECK((at.volume_id == "v1" && at.path == sha + "/globalmount" && at.device == "nbd0" && at.mounted && !at.block));
  CHECK(at.persistent_volume == "pvc-1");
  CHECK(at.stash_version == 3);
  REQUIRE((at.stash && *at.stash));
  CHECK((*at.stash)->image == "csi-vol-1");
  REQUIRE(inputs.nbd.size() == 1);
  CHECK((inputs.nbd[0].daemons == std::vector<int>{77} && inputs.nbd[0].seen.waiting == 3 &&
         inputs.nbd[0].seen.backend == "v1"));
  CHECK(inputs.options.default_mounter == cephcsi::Mounter::krbd);
  REQUIRE(inputs.clusters);
  CHECK(inputs.clusters->size() == 1);
  CHECK_FALSE(inputs.agent);
}

TEST_CASE("the numbers that take WRITE_ZEROES are read, also those that nobody uses") {
  const HostFolder host;
  host.block("nbd0", "43:0");
  host.block("nbd1", "43:32");
  host.put("/sys/block/nbd0/queue/write_zeroes_max_bytes", "0\n");
  host.put("/sys/block/nbd1/queue/write_zeroes_max_bytes", "4294966784\n");
  CHECK(host.gathered().zeroing_numbers == std::vector<std::uint32_t>{1});
}

TEST_CASE("a device counts as one that sends flushes only if its queue shows a write cache") {
  const HostFolder host;
  host.block("nbd0", "43:0");
  host.put("/sys/block/nbd0/backend", "v1\n");
  const auto sends_flushes = [&] { return host.gathered().nbd.at(0).sends_flushes; };
  CHECK_FALSE(sends_flushes());
  host.put("/sys/block/nbd0/queue/write_cache", "write through\n");
  CHECK_FALSE(sends_flushes());
  host.put("/sys/block/nbd0/queue/write_cache", "write back\n");
  CHECK(sends_flushes());
}

TEST_CASE(
    "an rbd-nbd's ceph.conf is read as that process sees it, and is an error if the file is newer than the process") {
  const HostFolder host;
  host.block("nbd0", "43:0");
  host.put("/sys/block/nbd0/backend", "v1\n");
  host.put("/sys/block/nbd0/pid", "77\n");
  host.put("/proc/77/comm", "rbd-nbd\n");
  host.put("/proc/77/cmdline", std::string("rbd-nbd\0--id\0app\0map\0", 21));
  host.put("/proc/77/status", "CapEff:\t000001ffffffffff\n");
  for (const char* process : {"self", "77"}) host.put("/proc/" + std::string(process) + "/uid_map", "0 0 4294967295\n");
  host.put("/proc/77/environ", std::string("PATH=/usr/bin\0", 14));
  host.put("/proc/77/stat", "77 (rbd-nbd) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0");
  const auto cache_off = [&] { return host.gathered().nbd.at(0).cache_off; };
  const auto boots = [&](const char* at) { host.put("/proc/stat", "cpu 1\nbtime " + std::string(at) + "\n"); };
  boots("4000000000");
  REQUIRE(cache_off());
  CHECK_FALSE(*cache_off());  // there is no ceph.conf
  // kubelet makes the files of a ConfigMap as links. An absolute link is followed in the process's root folder.
  host.put("/proc/77/root/etc/ceph/..data/ceph.conf", "[client]\nrbd_cache = false\n");
  const bool absolute = GENERATE(true, false);
  fs::create_symlink(absolute ? "/etc/ceph/..data/ceph.conf" : "..data/ceph.conf",
                     host.at("/proc/77/root/etc/ceph/ceph.conf"));
  REQUIRE(cache_off());
  CHECK(*cache_off());
  boots("1000");
  CHECK_THAT(cache_off().error().text, ContainsSubstring("may have been changed"));
}

TEST_CASE("a raw block volume is found by its PersistentVolume, and a kernel client's device by sysfs") {
  const HostFolder host;
  const std::string staging = kCsi + "/volumeDevices/staging/pvc-2";
  host.put(kCsi + "/volumeDevices/pvc-2/data/vol_data.json", data_of("v2"));
  host.put(staging + "/image-meta.json", kStash);
  host.mount("0:6", "/rbd3", staging + "/v2", "devtmpfs", "udev");
  host.put("/sys/bus/rbd/devices/3/pool", "rbd\n");
  host.put("/sys/bus/rbd/devices/3/name", "csi-vol-1\n");
  host.put("/sys/bus/rbd/devices/3/image_id", "1\n");
  const auto inputs = host.gathered();
  REQUIRE(inputs.staged.size() == 1);
  CHECK((inputs.staged[0].block && inputs.staged[0].persistent_volume == "pvc-2" && inputs.staged[0].device == "rbd3"));
  REQUIRE(inputs.krbd.size() == 1);
  CHECK((device::path(inputs.krbd[0].seen) == "/dev/rbd3" && inputs.krbd[0].name.text() == "rbd/csi-vol-1"));
}

TEST_CASE("the device of an encrypted filesystem is the one below its mapping") {
  const HostFolder host;
  const std::string sha = kCsi + "/" + kDriver + "/x";
  host.put(sha + "/globalmount/image-meta.json", kStash);
  host.mount("253:0", "/", sha + "/globalmount/v1", "xfs", "/dev/mapper/luks-rbd-v1");
  host.block("dm-0", "253:0");
  fs::create_directories(host.at("/sys/block/dm-0/slaves/nbd4"));
  const auto inputs = host.gathered();
  REQUIRE(inputs.staged.size() == 1);
  // Without kubelet's vol_data.json the path of the mount names the volume.
  CHECK((inputs.staged[0].volume_id == "v1" && inputs.staged[0].device == "nbd4"));
}

TEST_CASE("another driver's folders and empty folders are not taken for staged volumes") {
  const HostFolder host;
  host.put(kCsi + "/other.csi.com/x/globalmount/image-meta.json", kStash);
  host.put(kCsi + "/volumeDevices/pvc-3/data/vol_data.json", R"({"driverName":"other.csi.com","volumeHandle":"v3"})");
  host.put(kCsi + "/volumeDevices/staging/pvc-3/image-meta.json", kStash);
  fs::create_directories(host.at(kCsi + "/" + kDriver + "/y/globalmount"));
  CHECK(host.gathered().staged.empty());
}

TEST_CASE("a damaged stash, or a symbolic link or FIFO in its place, is an error of its volume") {
  const HostFolder host;
  const auto stash = [&](const std::string& name) {
    return host.at(kCsi + "/" + kDriver + "/" + name + "/globalmount/image-meta.json");
  };
  host.put(kCsi + "/" + kDriver + "/link/elsewhere", kStash);
  for (const auto& name : {"broken", "fifo", "link"}) {
    host.put(kCsi + "/" + kDriver + "/" + name + "/vol_data.json", data_of(name));
    host.put(kCsi + "/" + kDriver + "/" + name + "/globalmount/image-meta.json", "{");
  }
  for (const auto& name : {"fifo", "link"}) fs::remove(stash(name));
  REQUIRE(::mkfifo(stash("fifo").c_str(), 0600) == 0);
  fs::create_symlink("../elsewhere", stash("link"));
  const auto inputs = host.gathered();
  REQUIRE(inputs.staged.size() == 3);
  for (const auto& at : inputs.staged) CHECK_FALSE(at.stash);
}

TEST_CASE("a stash is not read through a mount, whose device may be unserved") {
  const HostFolder host;
  const std::string staging = kCsi + "/" + kDriver + "/x/globalmount";
  host.put(kCsi + "/" + kDriver + "/x/vol_data.json", data_of("v1"));
  fs::create_directories(host.at(staging));
  if (!test::may_mount()) return;
  REQUIRE(::mount("tmpfs", host.at(staging).c_str(), "tmpfs", 0, nullptr) == 0);
  host.put(staging + "/image-meta.json", kStash);
  const auto inputs = host.gathered();
  ::umount2(host.at(staging).c_str(), MNT_DETACH);
  REQUIRE(inputs.staged.size() == 1);
  CHECK_FALSE(inputs.staged[0].stash);
}

TEST_CASE("a node without CSI volumes, kernel modules and agent has nothing staged") {
  const HostFolder host;
  const auto inputs = host.gathered();
  CHECK(inputs.staged.empty());
  CHECK((inputs.kubelet && inputs.mounts && inputs.records.complete && inputs.mappings));
  CHECK(inputs.other_drivers.empty());
  CHECK_FALSE(inputs.nbd_there);
  CHECK_FALSE(inputs.api);
}

TEST_CASE("the staged volumes are unknown if kubelet's plugins folder is missing") {
  const HostFolder host;
  fs::create_directories(host.at("/sys/module/nbd"));
  REQUIRE(exit_code(forecast_migration(host.gathered())) == 0);
  fs::remove_all(host.at("/var/lib/kubelet/plugins"));
  CHECK_FALSE(host.gathered().kubelet);
  CHECK(exit_code(forecast_migration(host.gathered())) == 2);
}

TEST_CASE("the staged volumes are unknown if the driver's folder cannot be read") {
  const HostFolder host;
  host.put(kCsi + "/" + kDriver, "a file, not a folder");
  CHECK_FALSE(host.gathered().kubelet);
}

TEST_CASE("mounts, records and a cluster-mapping.json that cannot be read are errors, and not taken for empty") {
  const HostFolder host;
  fs::remove(host.at("/proc/1/mountinfo"));
  host.put("/state/volumes/a.json", "{");
  host.put("/config/cluster-mapping.json", "{");
  const auto inputs = host.gathered();
  CHECK_FALSE(inputs.mounts);
  CHECK_FALSE(inputs.records.complete);
  CHECK_FALSE(inputs.mappings);
}

TEST_CASE("another RBD driver's folder is reported only if this driver has no folder") {
  const HostFolder host;
  fs::create_directories(host.at(kCsi + "/rook-ceph.rbd.csi.ceph.com"));
  CHECK(host.gathered().other_drivers == std::vector<std::string>{"rook-ceph.rbd.csi.ceph.com"});
  fs::create_directories(host.at(kCsi + "/" + kDriver));
  CHECK(host.gathered().other_drivers.empty());
}

namespace {

/// `staged`: volume IDs, each with its PersistentVolume.
ForecastInputs asked(const result<kube::Access>& access, const std::vector<std::pair<std::string, std::string>>& staged,
                     const std::string& node = "") {
  ForecastInputs inputs;
  inputs.options.driver = kDriver;
  for (const auto& [id, volume] : staged) {
    auto& at = inputs.staged.emplace_back();
    at.volume_id = id;
    at.persistent_volume = volume;
  }
  ask_api_server(inputs, access, node);
  return inputs;
}

std::string volume_object() {
  return R"({"metadata":{"name":"pvc-1"},"spec":{"csi":{"driver":")" + kDriver +
         R"(","volumeHandle":"v1","volumeAttributes":{"mounter":"rbd-nbd"},"nodeStageSecretRef":{"name":"s","namespace":"n"}}}})";
}

}  // namespace

TEST_CASE("a volume's PersistentVolume and secret are requested by name, once per volume") {
  const std::string attachment = "/volumeattachments/" + kube::volume_attachment_name("v1", kDriver, "node-1");
  const test::ApiServer server([&](const auto& request, auto& peer) {
    if (request.target.find("/persistentvolumes/pvc-1") != std::string::npos)
      return peer.object(request, 200, volume_object());
    if (request.target.find("/namespaces/n/secrets/s") != std::string::npos)
      return peer.object(request, 200, R"({"data":{"userID":")" + to_base64("u") + R"("}})");
    if (request.target.find(attachment) != std::string::npos)
      return peer.object(request, 200, R"({"spec":{"source":{"persistentVolumeName":"pvc-1"}}})");
    peer.absent(request);
  });
  const bool by_attachment = GENERATE(true, false);
  const std::string volume = by_attachment ? "" : "pvc-1";
  const auto inputs = asked(server.access(), {{"v1", volume}, {"v1", volume}}, by_attachment ? "node-1" : "");
  REQUIRE(inputs.api);
  const auto& facts = inputs.facts.at("v1");
  REQUIRE(facts.volume);
  CHECK(facts.volume->attributes.at("mounter") == "rbd-nbd");
  REQUIRE(facts.secret);
  CHECK((facts.secret->user && !facts.secret->key));
  CHECK(server.requests().size() == (by_attachment ? 3 : 2));
}

namespace {

/// Whether the volume is attached. A file of the node names its PersistentVolume, and its stash is new.
result<> attached_by(const std::string& attachment, const std::string& staged_attachment = "") {
  const test::ApiServer server([&](const auto& request, auto& peer) {
    if (request.target.find("/volumeattachments/") != std::string::npos)
      return attachment.empty() ? peer.absent(request) : peer.object(request, 200, attachment);
    peer.object(request, 200,
                R"({"status":{"phase":"Bound"},"spec":{"accessModes":["ReadWriteOnce"],"csi":{"driver":")" + kDriver +
                    R"(","volumeHandle":"v1","nodeStageSecretRef":{"name":"s","namespace":"n"}}}})");
  });
  ForecastInputs inputs;
  inputs.options.driver = kDriver;
  StagedAt at;
  at.volume_id = "v1";
  at.persistent_volume = "pvc-1";
  cephcsi::Stash stash;
  stash.attachment = staged_attachment;
  at.stash = std::optional(stash);
  at.stashed = std::chrono::system_clock::now();
  inputs.staged = {at};
  ask_api_server(inputs, server.access(), "node-1");
  REQUIRE(inputs.api);
  return inputs.facts.at("v1").attached;
}

std::string attachment_of(const std::string& node, bool attached, const std::string& created) {
  return R"({"metadata":{"uid":"u1","creationTimestamp":")" + created + R"("},"spec":{"attacher":")" + kDriver +
         R"(","nodeName":")" + node + R"(","source":{"persistentVolumeName":"pvc-1"}},"status":{"attached":)" +
         (attached ? "true" : "false") + "}}";
}

}  // namespace

TEST_CASE(
    "a VolumeAttachment counts only if it is attached to this node, and the stash names it or is younger and names "
    "none") {
  const std::string past = "2020-01-01T00:00:00Z", future = "2200-01-01T00:00:00Z";
  CHECK(attached_by(attachment_of("node-1", true, past)));
  CHECK(attached_by(attachment_of("node-1", true, past), "u1"));
  CHECK_THAT(attached_by(attachment_of("node-1", true, past), "u0").error().text, ContainsSubstring("UID u0, now u1"));
  CHECK_FALSE(attached_by(attachment_of("node-2", true, past)));
  CHECK(attached_by(attachment_of("node-1", false, past)).error().code == errc::failed_precondition);
  CHECK_FALSE(attached_by(attachment_of("node-1", true, future)));
  CHECK(attached_by("").error().code == errc::not_found);
}

TEST_CASE("the CSIDriver's attachRequired is requested once for all volumes whose VolumeAttachment is missing") {
  const auto [status, driver] = GENERATE(table<unsigned, std::string>({
      {200, R"({"spec":{"attachRequired":false}})"},
      {200, R"({"spec":{}})"},
      {404, R"({"kind":"Status","code":404,"message":"no driver"})"},
      {403, R"({"kind":"Status","code":403,"reason":"Forbidden","message":"not for you"})"},
  }));
  const test::ApiServer server([&, answer = status, object = driver](const auto& request, auto& peer) {
    if (request.target.ends_with("/csidrivers/" + kDriver)) return peer.object(request, answer, object);
    peer.absent(request);
  });
  ForecastInputs inputs;
  inputs.options.driver = kDriver;
  for (const char* id : {"v1", "v2"}) inputs.staged.emplace_back().volume_id = id;
  ask_api_server(inputs, server.access(), "node-1");
  if (status == 403)
    CHECK_THAT(inputs.attaches.error().text, ContainsSubstring("CSIDriver " + kDriver));
  else
    CHECK(*inputs.attaches == (driver.find("false") == std::string::npos));
  CHECK(std::ranges::count_if(server.requests(), [](const auto& one) {
          return one.target.find("/csidrivers/") != std::string::npos;
        }) == 1);
}

TEST_CASE(
    "a PersistentVolume that is missing or of another driver is an error of its volume only, and the next volume is "
    "asked for") {
  const std::string body = GENERATE(as<std::string>(), "", R"({"spec":{"csi":{"driver":"x","volumeHandle":"v1"}}})");
  const test::ApiServer server([&](const auto& request, auto& peer) {
    if (request.target.ends_with("/pvc-2"))
      return peer.answer(
          200, R"({"metadata":{"name":"pvc-2"},"spec":{"csi":{"driver":")" + kDriver + R"(","volumeHandle":"v2"}}})");
    if (body.empty()) return peer.absent(request);
    peer.object(request, 200, body);
  });
  const auto inputs = asked(server.access(), {{"v1", "pvc-1"}, {"v2", "pvc-2"}});
  CHECK(inputs.api);
  CHECK_THAT(inputs.facts.at("v1").volume.error().text, ContainsSubstring("pvc-1"));
  CHECK(inputs.facts.at("v2").volume);
}

TEST_CASE("an API server that cannot be reached is reported as an error") {
  kube::Access access;
  access.host = "127.0.0.1";
  access.port = 1;
  access.tls = false;
  CHECK_FALSE(asked(access, {{"v1", "pvc-1"}}).api);
}

TEST_CASE("an API server that hangs up is not asked about the next volume") {
  const test::ApiServer server([](const auto&, auto& peer) { peer.close(); });
  const auto inputs = asked(server.access(), {{"v1", "pvc-1"}, {"v2", "pvc-2"}});
  CHECK_FALSE(inputs.api);
  CHECK(inputs.facts.size() == 1);
  CHECK(std::ranges::all_of(server.requests(), [](const auto& one) { return one.target.ends_with("/pvc-1"); }));
}

TEST_CASE("the proxy variables of ceph-csi's node plugin are read by their names") {
  const HostFolder host;
  const auto process = [&](const std::string& pid, const std::string& words, const std::string& variables) {
    host.put("/proc/" + pid + "/cmdline", words);
    host.put("/proc/" + pid + "/environ", variables);
  };
  const auto zero = [](std::string text) {
    std::ranges::replace(text, ' ', '\0');
    return text;
  };
  process("10", zero("/usr/bin/other --nodeserver "), zero("https_proxy=http://other "));
  process("11", zero("/usr/local/bin/cephcsi --type=rbd --controllerserver "), zero("https_proxy=http://other "));
  CHECK(host.gathered().proxies.empty());
  process("12", zero("/usr/local/bin/cephcsi --type=rbd --nodeserver=true "),
          zero("A=HTTP_PROXY=x HTTP_PROXY= https_proxy=http://proxy:3128 NO_PROXY=.svc "));
  CHECK(host.gathered().proxies == std::vector<std::string>{"https_proxy"});
}
