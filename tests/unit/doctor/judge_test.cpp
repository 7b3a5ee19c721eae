#include "inputs.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <fstream>

#include "corbd/rbd/ceph_conf.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using namespace corbd::doctor;
using namespace std::string_literals;

namespace {

/// A node on which nothing is wrong.
Inputs healthy() {
  Inputs inputs;
  inputs.kernel = "6.1.0-13-amd64";
  inputs.nbd_there = true;
  inputs.nbds_max = "0";
  inputs.capabilities = ~std::uint64_t{0};
  inputs.pid_namespace = "pid:[4026531836]";
  inputs.host_network = true;
  inputs.propagation = {{"/var/lib/kubelet/pods", true}, {"/var/lib/kubelet/plugins", true}};
  inputs.options.kubelet_dir = "/var/lib/kubelet";
  inputs.options.state_dir = "/state";
  inputs.clusters = std::vector<rbd::ClusterEntry>{{"prod", {"m1", "m2"}, "", {}}};
  inputs.monitors = {{"prod", "m1", true}, {"prod", "m2", true}};
  inputs.devices = {{0, "v1", false, 0}};
  inputs.records.volumes = {"v1"};
  inputs.tools = {{"mkfs.ext4", "e2fsprogs", true}, {"mkfs.xfs", "xfsprogs", true}};
  inputs.ceph_release = "20.2.4";
  inputs.own.set_version("0.2.0");
  inputs.own.set_commit("abc");
  inputs.own.set_handover_protocol(2);
  inputs.own.set_record_version(2);
  inputs.status.emplace();
  *inputs.status->mutable_program() = inputs.own;
  auto* kubelet = inputs.status->add_components();
  kubelet->set_name("kubelet");
  kubelet->set_verdict(v1::VERDICT_OK);
  return inputs;
}

constexpr kube::Right kNodes{"get", "", "nodes", "no labels"}, kSecrets{"get", "", "secrets", "no keys"};

Finding find(const Inputs& inputs, const std::string& check) {
  for (const auto& finding : judge(inputs))
    if (finding.check == check) return finding;
  return {check, Grade::ok, "no such finding", {}};
}

}  // namespace

TEST_CASE("the doctor names what corbd would refuse on purpose for each staged volume, without a warning") {
  auto inputs = healthy();
  CHECK(find(inputs, "combinations").said == "no volume is staged here");
  inputs.records.combinations["plain"] = {};
  CHECK(find(inputs, "combinations").said == "the volumes that are staged here meet no row of the table");
  inputs.records.combinations["v1"] = {.encryption = plan::Combination::Encryption::device};
  device::Seen seen;
  seen.holders = {{"dm-0", "luks-rbd-v1_dif", 0}, {"dm-1", "luks-rbd-v1", 0}};
  find_integrity(inputs.records, {seen});
  const auto found = find(inputs, "combinations");
  CHECK(found.verdict == Grade::ok);
  CHECK_THAT(found.said, ContainsSubstring("volume v1: expansion (integrityMode)") && !ContainsSubstring("plain"));
}

TEST_CASE("a healthy node has no warning and exit code 0") {
  const auto findings = judge(healthy());
  for (const auto& finding : findings) {
    INFO(finding.check << ": " << finding.said);
    CHECK(finding.verdict == Grade::ok);
    CHECK(finding.remedy.empty());
  }
  CHECK(exit_code(findings) == 0);
}

TEST_CASE("every finding that is not ok names a remedy") {
  Inputs inputs;  // nothing is there
  inputs.runtime_dir = inputs.state_dir_writable = inputs.admin = inputs.csi = Error{errc::unavailable, "no"};
  inputs.devices = {{0, "", false, 0}, {1, "foreign", false, 0}};
  const auto findings = judge(inputs);
  CHECK(exit_code(findings) == 2);
  for (const auto& finding : findings)
    if (finding.verdict != Grade::ok) CHECK_FALSE(finding.remedy.empty());
}

TEST_CASE("an agent that may dump core is a warning, and its remedy names --allow-core-dumps") {
  const std::string limits =
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max cpu time              unlimited            unlimited            seconds   \n"
      "Max core file size        ";
  CHECK(dumps_core(limits + "0                    0                    bytes     \n") == false);
  CHECK(dumps_core(limits + "unlimited            unlimited            bytes     \n") == true);
  CHECK(dumps_core("Max cpu time   unlimited") == std::nullopt);
  auto inputs = healthy();
  inputs.dumps_core = false;
  CHECK(find(inputs, "core-dumps").verdict == Grade::ok);
  inputs.dumps_core = true;
  CHECK(find(inputs, "core-dumps").verdict == Grade::warning);
  CHECK_THAT(find(inputs, "core-dumps").remedy, ContainsSubstring("--allow-core-dumps"));
}

TEST_CASE("the exit code is that of the worst finding") {
  CHECK(exit_code({{"a", Grade::ok, "", ""}, {"b", Grade::warning, "", ""}}) == 1);
  CHECK(exit_code({{"a", Grade::failure, "", ""}, {"b", Grade::warning, "", ""}}) == 2);
}

TEST_CASE("a warning names the missing programs, and its remedy names their packages") {
  auto inputs = healthy();
  inputs.tools[1].there = false;
  const auto found = find(inputs, "filesystem-tools");
  CHECK(found.verdict == Grade::warning);
  CHECK_THAT(found.said, ContainsSubstring("missing: mkfs.xfs."));
  CHECK_THAT(found.remedy, ContainsSubstring("install xfsprogs;"));
}

TEST_CASE("a filesystem that this kernel does not mount is a failure, and one for newer kernels than 5.14 a warning",
          "[failure:252]") {
  const host::KernelNeeds plain{"xfs", "", ""}, newer{"xfs", "", "parent (Linux 6.10)"},
      unknown{"xfs", "parent (Linux 6.10)", "parent (Linux 6.10)"};
  auto inputs = healthy();
  inputs.filesystems = {{"v1", "/dev/nbd0", true, plain}, {"v2", "/dev/nbd1", false, plain}};
  CHECK_THAT(find(inputs, "filesystems").said, ContainsSubstring("2 staged filesystems mount on Linux 5.14 and newer"));
  CHECK(find(inputs, "filesystems").verdict == Grade::ok);
  inputs.filesystems[1] = {"v2", "/dev/nbd1", false, unknown};
  const auto refused = find(inputs, "filesystem /dev/nbd1");
  CHECK(refused.verdict == Grade::failure);
  CHECK_THAT(refused.said, ContainsSubstring("xfs of volume v2") && ContainsSubstring("parent (Linux 6.10)") &&
                               ContainsSubstring("6.1.0-13"));
  // This kernel mounts it, whatever its number says.
  const bool mounted = GENERATE(false, true);
  inputs.filesystems[1] = {"v2", "/dev/nbd1", mounted, mounted ? unknown : newer};
  CHECK(find(inputs, "filesystem /dev/nbd1").said == "no such finding");
  CHECK(find(inputs, "filesystems").verdict == Grade::warning);
  CHECK_THAT(find(inputs, "filesystems").said, ContainsSubstring("Linux 5.14") && ContainsSubstring("/dev/nbd1"));
}

TEST_CASE("a device that does not answer is named, and is no finding of its filesystem") {
  auto inputs = healthy();
  inputs.filesystems = {{"v1", "/dev/nbd0", true, Error{errc::timed_out, "no answer in time"}}};
  const auto found = find(inputs, "filesystems");
  CHECK(found.verdict == Grade::ok);
  CHECK_THAT(found.said, ContainsSubstring("not read: /dev/nbd0 (no answer in time)"));
  inputs.filesystems.push_back({"v2", "/dev/nbd1", true, host::KernelNeeds{"xfs", "", "parent (Linux 6.10)"}});
  CHECK(find(inputs, "filesystems").verdict == Grade::warning);
  CHECK_THAT(find(inputs, "filesystems").said, ContainsSubstring("not read: /dev/nbd0"));
}

TEST_CASE("a mkfs that makes what kernels do not mount is named with the agent's options") {
  const host::KernelNeeds plain{"ext4", "", ""};
  auto inputs = healthy();
  inputs.new_filesystems = {{"ext4", "", plain}};
  CHECK(find(inputs, "mkfs").verdict == Grade::ok);
  inputs.new_filesystems = {{"xfs", "-i nrext64=1", host::KernelNeeds{"xfs", "", "nrext64 (Linux 5.19)"}}};
  auto found = find(inputs, "mkfs");
  CHECK(found.verdict == Grade::warning);
  CHECK_THAT(found.said, ContainsSubstring("mkfs.xfs with --mkfs-options -i nrext64=1"));
  CHECK_THAT(found.remedy, ContainsSubstring("leave these features out of --mkfs-options"));
  inputs.new_filesystems = {{"xfs", "", host::KernelNeeds{"xfs", "parent (Linux 6.10)", "parent (Linux 6.10)"}}};
  found = find(inputs, "mkfs");
  CHECK(found.verdict == Grade::failure);
  CHECK_THAT(found.remedy, ContainsSubstring("set --mkfs-options xfs:OPTIONS"));
  inputs.new_filesystems = {{"xfs", "-l logdev=/dev/x", Error{errc::failed_precondition, "mkfs.xfs is not tried"}}};
  CHECK(find(inputs, "mkfs").verdict == Grade::ok);
  CHECK_THAT(find(inputs, "mkfs").said, ContainsSubstring("not tried"));
}

TEST_CASE("the agent's --mkfs-options are read from its command line") {
  const auto line = [](std::initializer_list<const char*> words) {
    std::string text;
    for (const char* word : words) text += std::string(word) + std::string(1, 0);
    return text;
  };
  CHECK(flag_of(line({"corbd", "run", "--mkfs-options=xfs:-K -m bigtime=1", "--verbose"}), "mkfs-options") ==
        "xfs:-K -m bigtime=1");
  CHECK(flag_of(line({"cephcsi", "-mkfs-options", "xfs:-K"}), "mkfs-options") == "xfs:-K");
  CHECK(flag_of(line({"corbd", "run", "--no-mkfs-options=x", "--verbose"}), "mkfs-options").empty());
  CHECK(flag_of("", "mkfs-options").empty());
}

TEST_CASE("a boolean flag of the agent is read from its command line as Go reads it") {
  const auto line = [](std::initializer_list<const char*> words) {
    std::string text;
    for (const char* word : words) text += std::string(word) + std::string(1, 0);
    return text;
  };
  CHECK(is_on(line({"corbd", "run", "--no-rbd-nbd", "--verbose"}), "no-rbd-nbd"));
  CHECK(is_on(line({"cephcsi", "-no-rbd-nbd=1"}), "no-rbd-nbd"));
  CHECK(is_on(line({"corbd", "run", "--no-rbd-nbd=True"}), "no-rbd-nbd"));
  CHECK_FALSE(is_on(line({"corbd", "run", "--no-rbd-nbd=false"}), "no-rbd-nbd"));
  CHECK_FALSE(is_on(line({"corbd", "run", "--no-rbd-nbd-at-all", "--verbose"}), "no-rbd-nbd"));
  CHECK_FALSE(is_on("", "no-rbd-nbd"));
}

TEST_CASE("rbd-nbd on the node of an agent with --no-rbd-nbd is a warning that names it", "[rule:21]") {
  auto inputs = healthy();
  CHECK(find(inputs, "rbd-nbd").verdict == Grade::ok);
  inputs.rbd_nbd = {"process 4711 is rbd-nbd"};
  CHECK(find(inputs, "rbd-nbd").verdict == Grade::ok);
  inputs.no_rbd_nbd = true;
  const auto found = find(inputs, "rbd-nbd");
  CHECK(found.verdict == Grade::warning);
  CHECK_THAT(found.said, ContainsSubstring("--no-rbd-nbd") && ContainsSubstring("process 4711"));
  CHECK_THAT(found.remedy, ContainsSubstring("nodeplugin.noRbdNbd") && ContainsSubstring("modprobe -r nbd"));
  inputs.rbd_nbd.clear();
  CHECK(find(inputs, "rbd-nbd").verdict == Grade::ok);
}

TEST_CASE("numbers on which an earlier agent left WRITE_ZEROES are a warning where rbd-nbd may get one", "[rule:21]") {
  auto inputs = healthy();
  inputs.zeroing_numbers = {0, 3};
  CHECK(find(inputs, "rbd-nbd").verdict == Grade::ok);
  CHECK_THAT(find(inputs, "rbd-nbd").said, ContainsSubstring("/dev/nbd0, /dev/nbd3"));
  inputs.rbd_nbd = {"/usr/bin/rbd-nbd is installed"};
  CHECK(find(inputs, "rbd-nbd").verdict == Grade::warning);
  CHECK_THAT(find(inputs, "rbd-nbd").said, ContainsSubstring("/usr/bin/rbd-nbd is installed"));
}

TEST_CASE("the signs of rbd-nbd are its program, its processes, and ceph-csi's node plugin, but not the agent itself") {
  const test::Folder host;
  const auto put = [&](const std::string& path, const std::string& text) {
    const auto full = std::filesystem::path(host.path() + path);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  };
  const std::string agent = "cephcsi\0--nodeserver=true\0--no-rbd-nbd\0"s;
  const auto signs = [&] { return signs_of_rbd_nbd(host.path(), host.path() + "/proc", agent); };
  put("/proc/version", "Linux");
  put("/proc/7/comm", "cephcsi\n");
  put("/proc/7/cmdline", agent);
  put("/proc/8/comm", "cephcsi\n");
  put("/proc/8/cmdline", "cephcsi\0--controllerserver=true\0"s);
  put("/proc/9/comm", "less\n");
  put("/proc/9/cmdline", "less\0rbd-nbd\0"s);
  CHECK(signs().empty());
  put("/proc/10/comm", "rbd-nbd\n");
  put("/proc/11/comm", "cephcsi\n");
  put("/proc/11/cmdline", "/usr/local/bin/cephcsi\0--nodeserver=true\0"s);
  put("/usr/bin/rbd-nbd", "");
  CHECK(signs() == std::vector<std::string>{"/usr/bin/rbd-nbd is installed", "process 10 is rbd-nbd",
                                            "process 11 is ceph-csi's node plugin, which starts rbd-nbd"});
}

TEST_CASE("a system bus that does not answer is a warning") {
  auto inputs = healthy();
  inputs.system_bus = Error{errc::unavailable, "no bus"};
  CHECK(find(inputs, "d-bus").verdict == Grade::warning);
  CHECK_THAT(find(inputs, "d-bus").remedy, ContainsSubstring("/run/dbus"));
}

TEST_CASE("a host whose init is not systemd needs no system bus, and the finding says so") {
  auto inputs = healthy();
  inputs.system_bus = Error{errc::failed_precondition, "the host's init is openrc"};
  CHECK(find(inputs, "d-bus").verdict == Grade::ok);
  CHECK(find(inputs, "d-bus").said == "not used: the host's init is openrc");
}

TEST_CASE("each complaint about the KMS config is a warning, whether the KMS serves or not") {
  auto inputs = healthy();
  CHECK(find(inputs, "kms-config").verdict == Grade::ok);
  inputs.kms = {{"v", GENERATE(true, false), "KMS \"v\" has no vaultAddress"}};
  const auto found = find(inputs, "kms-config");
  CHECK(found.verdict == Grade::warning);
  CHECK_THAT(found.said, ContainsSubstring("vaultAddress"));
  CHECK_FALSE(found.remedy.empty());
}

TEST_CASE("the dm_crypt module is never a warning, and the finding says whether it is loaded, loadable or absent") {
  auto inputs = healthy();
  for (const auto& [module, said] :
       {std::pair(Module::present, "can be opened"), std::pair(Module::loadable, "modprobe dm_crypt"),
        std::pair(Module::absent, "are refused")}) {
    inputs.dm_crypt = module;
    CHECK(find(inputs, "dm_crypt").verdict == Grade::ok);
    CHECK_THAT(find(inputs, "dm_crypt").said, ContainsSubstring(said));
  }
}

TEST_CASE("a warning names each right that the API server does not grant, and what fails without it") {
  auto inputs = healthy();
  inputs.api_rights = std::vector<kube::Allowed>{{&kNodes, true, ""}, {&kSecrets, false, ""}};
  auto found = find(inputs, "api-rights");
  CHECK(found.verdict == Grade::warning);
  CHECK(found.said == "not granted: get secrets: without it no keys");
  inputs.api_rights->at(1).yes = true;
  CHECK(find(inputs, "api-rights").said == "all 2 are granted");
  inputs.api_rights->at(1) = {&kSecrets, std::nullopt, "no route"};
  CHECK(find(inputs, "api-rights").verdict == Grade::warning);
  CHECK_THAT(find(inputs, "api-rights").said, ContainsSubstring("no route"));
  inputs.api_rights = Error{errc::failed_precondition, "not a pod"};
  CHECK(find(inputs, "api-rights").verdict == Grade::ok);
  inputs.api_rights = Error{errc::invalid_argument, "not YAML"};
  CHECK(find(inputs, "api-rights").verdict == Grade::warning);
}

TEST_CASE(
    "a right that Roles may grant by namespace is no warning if it is not cluster-wide, and no remedy is proposed") {
  auto inputs = healthy();
  constexpr kube::Right secrets{"get", "", "secrets", "no keys", false, true};
  inputs.api_rights = std::vector<kube::Allowed>{{&kNodes, true, ""}, {&secrets, false, ""}};
  auto found = find(inputs, "api-rights");
  CHECK(found.verdict == Grade::ok);
  CHECK(found.said == "all others are granted; get secrets is not granted cluster-wide: by namespace?");
  CHECK(found.remedy.empty());
  inputs.api_rights->at(0).yes = false;
  found = find(inputs, "api-rights");
  CHECK(found.verdict == Grade::warning);
  CHECK(found.said == "not granted: get nodes: without it no labels");
}

TEST_CASE("the doctor repeats the agent's own verdicts on its components") {
  auto inputs = healthy();
  auto* bus = inputs.status->add_components();
  bus->set_name("state-dir");
  bus->set_verdict(v1::VERDICT_CRITICAL);
  bus->set_text("the disk is full");
  CHECK(find(inputs, "status of state-dir").verdict == Grade::failure);
  CHECK(find(inputs, "status of state-dir").said == "the disk is full");
  CHECK(find(inputs, "registration").verdict == Grade::ok);
  inputs.status->mutable_components(0)->set_verdict(v1::VERDICT_WARNING);
  CHECK(find(inputs, "registration").verdict == Grade::warning);
  inputs.status.reset();
  CHECK(find(inputs, "registration").verdict == Grade::warning);
  inputs.admin = Error{errc::unavailable, "no agent"};
  CHECK(find(inputs, "registration").said == "no such finding");
}

TEST_CASE("a key that librados or the kernel client cannot use is a failure that names its volume") {
  auto inputs = healthy();
  inputs.keys = {{"v1", KeyType::aes, true}, {"v2", KeyType::aes256k, false}};
  CHECK(find(inputs, "cephx-keys").verdict == Grade::ok);
  CHECK_THAT(find(inputs, "cephx-keys").said, ContainsSubstring("1 of type aes, 1 of type aes256k"));
  CHECK_THAT(find(inputs, "cephx-keys").said, ContainsSubstring("on this kernel, mounter rbd takes no aes256k"));
  inputs.keys.push_back({"v3", KeyType::aes256k, true});
  auto found = find(inputs, "cephx-keys");
  CHECK(found.verdict == Grade::failure);
  CHECK_THAT(found.said, ContainsSubstring("Linux 6.1.0-13-amd64 cannot use the aes256k key of v3,"));
  CHECK_THAT(found.remedy, ContainsSubstring("mounter: rbd-nbd"));
  inputs.kernel = "7.0.1";
  CHECK(find(inputs, "cephx-keys").verdict == Grade::ok);
  inputs.ceph_release = "20.2.3";
  found = find(inputs, "cephx-keys");
  CHECK(found.verdict == Grade::failure);
  CHECK_THAT(found.said, ContainsSubstring("librados of Ceph 20.2.3 cannot use the aes256k key of v2, v3"));
  for (const char* release : {"19.2.6", "20.2.4", "20.3.0", "21.0.0-1", ""}) {
    inputs.ceph_release = release;
    CHECK(find(inputs, "cephx-keys").verdict == Grade::ok);
  }
}

TEST_CASE("a host's clusters are those of config.json, or without that file the one of ceph.conf") {
  const test::Folder folder;
  const std::string conf = folder.path() + "/ceph.conf";
  std::ofstream(conf) << "[global]\nfsid = f-1\nmon_host = a,b\n";
  CHECK(rbd::read_clusters(folder.path(), "").error().code == errc::not_found);
  REQUIRE(rbd::read_clusters(folder.path(), conf));
  CHECK(rbd::read_clusters(folder.path(), conf)->at(0).cluster_id == "f-1");
  CHECK(rbd::read_clusters(folder.path(), conf)->at(0).monitors == std::vector<std::string>{"a", "b"});
  std::ofstream(folder.path() + "/config.json") << R"([{"clusterID":"c","monitors":["m"]}])";
  CHECK(rbd::read_clusters(folder.path(), conf)->at(0).cluster_id == "c");
  auto inputs = healthy();
  inputs.clusters = Error{errc::not_found, "no"};
  inputs.options.ceph_conf = conf;
  CHECK_THAT(find(inputs, "config.json").remedy, ContainsSubstring("generate-minimal-conf"));
}

TEST_CASE("keyrings are listed by key type, and one that librados cannot use is a failure only if a mount uses it") {
  auto inputs = healthy();
  inputs.ceph_release = "18.2.7";
  inputs.keys = {{"/srv/db (client.db)", KeyType::aes, false, KeySeen::From::mount},
                 {"client.admin in /etc/ceph/keyring", KeyType::aes256k, false, KeySeen::From::keyring}};
  CHECK(find(inputs, "keyrings").said == "aes: /srv/db (client.db); aes256k: client.admin in /etc/ceph/keyring");
  CHECK(find(inputs, "keyrings").verdict == Grade::ok);
  CHECK(find(inputs, "cephx-keys").verdict == Grade::warning);
  CHECK_THAT(find(inputs, "cephx-keys").said, ContainsSubstring("no mount uses"));
  inputs.keys[1].from = KeySeen::From::mount;
  CHECK(find(inputs, "cephx-keys").verdict == Grade::failure);
}

TEST_CASE("a mount's keyring is a failure if the kernel client serves the mount and does not know the key's type") {
  auto inputs = healthy();
  inputs.keys = {{"/srv/db (client.db)", KeyType::aes256k, true, KeySeen::From::mount}};
  CHECK(find(inputs, "cephx-keys").verdict == Grade::failure);
  CHECK_THAT(find(inputs, "cephx-keys").said, ContainsSubstring("cannot use the aes256k key of /srv/db (client.db),"));
  inputs.kernel = "7.0.1";
  CHECK(find(inputs, "cephx-keys").verdict == Grade::ok);
}

TEST_CASE("a file in mounts.d that cannot be mounted is a warning") {
  auto inputs = healthy();
  CHECK(find(inputs, "mounts.d").said == "no such finding");
  inputs.wrong_mounts = {"/etc/corbd/mounts.d/db.conf: line 2: there is no key x"};
  CHECK(find(inputs, "mounts.d").verdict == Grade::warning);
}

TEST_CASE("a file of mounts.d that asks for what is refused on purpose is named with the reason") {
  const test::Folder folder;
  const auto put = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder.path() + name).parent_path());
    std::ofstream(folder.path() + name) << text;
  };
  put("/ceph.conf", "[global]\nfsid = f\nmon_host = a\n");
  put("/ring", "[client.a]\nkey = AQDgkbRgAAAAABAA\n");
  put("/passphrase", "canary");
  put("/mounts.d/a.conf", "image = rbd/a\ndir = /srv/a\nuser = a\nconf = " + folder.path() +
                              "/ceph.conf\nkeyring = " + folder.path() + "/ring\npassphrase-file = " + folder.path() +
                              "/passphrase\nfstype = xfs\nencrypted = default\nattribute = encryptionType=file\n");
  const auto found = read_keyrings(folder.path() + "/mounts.d", "/none");
  REQUIRE(found.wrong.size() == 1);
  CHECK_THAT(found.wrong[0],
             ContainsSubstring("a.conf: ") && ContainsSubstring(std::string(plan::not_served::kFilesOnOther.why)));
  CHECK(found.keys.size() == 1);
}

TEST_CASE("a host's keyrings are those that its mounts name and the others in its Ceph folder") {
  const test::Folder folder;
  const auto put = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder.path() + name).parent_path());
    std::ofstream(folder.path() + name) << text;
  };
  const auto mount = [&](const std::string& name, const std::string& more) {
    put("/mounts.d/" + name + ".conf", "image = rbd/" + name + "\ndir = /srv/" + name + "\nconf = " + folder.path() +
                                           "/ceph.conf\nkeyring = " + folder.path() + "/ring\n" + more);
  };
  put("/ceph.conf", "[global]\nfsid = f\nmon_host = a\n");
  put("/ring", "[client.old]\nkey = AQDgkbRgAAAAABAA\n[client.new]\nkey = AgDgkbRgAAAAACAA\n");
  mount("a", "user = old\n");
  mount("b", "user = new\nattribute = mounter=rbd\n");
  mount("c", "user = new\nattribute = mounter=rbd\nattribute = tryOtherMounters=true\n");
  mount("d", "user = nobody\n");
  mount("e", "colour = red\n");
  put("/ceph/ceph.client.old.keyring", "[client.old]\nkey = AQDgkbRgAAAAABAA\n");
  put("/ceph/keyring", "[client.admin]\nkey = AgDgkbRgBBBBACAA\n[mon.]\nkey = AQDgkbRgCCCCABAA\n");
  put("/ceph/ceph.conf", "[client.x]\nkey = AQDgkbRgDDDDABAA\n");
  const auto found = read_keyrings(folder.path() + "/mounts.d", folder.path() + "/ceph");
  REQUIRE(found.keys.size() == 4);
  CHECK((found.keys[0].of == "/srv/a (client.old)" && found.keys[0].type == KeyType::aes));
  CHECK((found.keys[1].type == KeyType::aes256k && found.keys[1].by_kernel));
  CHECK((found.keys[2].type == KeyType::aes256k && !found.keys[2].by_kernel));
  CHECK(found.keys[3].of == "client.admin in " + folder.path() + "/ceph/keyring");
  CHECK(found.keys[3].from == KeySeen::From::keyring);
  REQUIRE(found.wrong.size() == 2);
  CHECK_THAT(found.wrong[0], ContainsSubstring("/mounts.d/d.conf: ") && ContainsSubstring("client.nobody"));
  CHECK_THAT(found.wrong[1], ContainsSubstring("/mounts.d/e.conf: line 5"));
  // An agent with this --default-mounter and these rules decides the same.
  const auto by_default = read_keyrings(folder.path() + "/mounts.d", "/none", {cephcsi::Mounter::krbd});
  CHECK(by_default.keys[0].by_kernel);
  const auto rules = cephcsi::parse_mounter_rules(R"([{"mounter":"rbd-nbd","pool":"rbd"}])");
  REQUIRE(rules);
  CHECK_FALSE(read_keyrings(folder.path() + "/mounts.d", "/none", {cephcsi::Mounter::krbd, *rules}).keys[1].by_kernel);
  const auto none = read_keyrings(folder.path() + "/none", folder.path() + "/none");
  CHECK((none.keys.empty() && none.wrong.empty()));
}

TEST_CASE("an aes256k key inside a text is redacted") {
  const std::string key = "AgDgkbRgAAAAACAA" + std::string(43, 'x') + "=";
  CHECK(redacted_text("key " + key + ",") == "key <redacted>,");
}

TEST_CASE("a kernel before 5.4 is a failure, and one before 5.14, without device identifiers, is a warning") {
  auto inputs = healthy();
  for (const auto& [release, verdict] :
       {std::pair("5.3.18", Grade::failure), std::pair("4.18.0-372.el8", Grade::failure),
        std::pair("5.4.0", Grade::warning), std::pair("5.14.0-1", Grade::ok), std::pair("6.12.1+deb13", Grade::ok),
        std::pair("10.0", Grade::ok), std::pair("x", Grade::failure)}) {
    inputs.kernel = release;
    INFO(release);
    CHECK(find(inputs, "kernel").verdict == verdict);
  }
}

TEST_CASE("a missing nbd driver is a failure, and one with devices from the start is a warning") {
  auto inputs = healthy();
  inputs.nbds_max = "16";
  CHECK(find(inputs, "nbd").verdict == Grade::warning);
  inputs.nbd_there = false;
  CHECK(find(inputs, "nbd").verdict == Grade::failure);
  CHECK_THAT(find(inputs, "nbd").remedy, ContainsSubstring("modprobe nbd nbds_max=0"));
}

TEST_CASE("the kernel's rbd module is never a warning, and the finding says whether it is loaded, loadable or absent",
          "[failure:110]") {
  auto inputs = healthy();
  for (const auto& [rbd, said] :
       {std::pair(Module::present, "can be staged"), std::pair(Module::loadable, "modprobe rbd"),
        std::pair(Module::absent, "are refused")}) {
    inputs.rbd = rbd;
    CHECK(find(inputs, "rbd").verdict == Grade::ok);
    CHECK_THAT(find(inputs, "rbd").said, ContainsSubstring(said));
  }
}

TEST_CASE(
    "a missing CAP_SYS_ADMIN is a failure, any other missing capability of the manifest is a warning, and each is "
    "named") {
  auto inputs = healthy();
  for (const auto& [bit, name] : {std::pair(24, "CAP_SYS_RESOURCE"), std::pair(12, "CAP_NET_ADMIN"),
                                  std::pair(2, "CAP_DAC_READ_SEARCH"), std::pair(27, "CAP_MKNOD")}) {
    inputs.capabilities = ~(std::uint64_t{1} << bit);
    CHECK(find(inputs, "capabilities").verdict == Grade::warning);
    CHECK_THAT(find(inputs, "capabilities").said, ContainsSubstring(name));
  }
  inputs.capabilities = ~(std::uint64_t{1} << 21);
  CHECK(find(inputs, "capabilities").verdict == Grade::failure);
  inputs.capabilities = 0;
  for (const std::string name :
       {"CAP_SYS_ADMIN", "CAP_SYS_RESOURCE", "CAP_NET_ADMIN", "CAP_DAC_READ_SEARCH", "CAP_MKNOD"})
    CHECK_THAT(find(inputs, "capabilities").said, ContainsSubstring(name + " is missing"));
  inputs.capabilities.reset();
  CHECK(find(inputs, "capabilities").verdict == Grade::warning);
}

TEST_CASE("a PID namespace other than the host's is a failure, or a warning if the node itself may be a container") {
  auto inputs = healthy();
  inputs.pid_namespace = "pid:[4026532555]";
  inputs.first_process = "corbd";
  CHECK(find(inputs, "pid-namespace").verdict == Grade::failure);
  inputs.first_process = "systemd";
  CHECK(find(inputs, "pid-namespace").verdict == Grade::warning);
}

TEST_CASE("the host's network namespace is needed only before Linux 6.4") {
  auto inputs = healthy();
  inputs.host_network = false;
  CHECK(find(inputs, "network-namespace").verdict == Grade::failure);
  inputs.host_network.reset();
  CHECK(find(inputs, "network-namespace").verdict == Grade::warning);
  inputs.kernel = "6.4.0";
  CHECK(find(inputs, "network-namespace").verdict == Grade::ok);
}

TEST_CASE("either folder of kubelet without mount propagation to the host, or without a mount, is a failure") {
  auto inputs = healthy();
  auto& [folder, shared] = inputs.propagation.at(GENERATE(0, 1));
  shared = false;
  CHECK(find(inputs, "mount-propagation").verdict == Grade::failure);
  CHECK_THAT(find(inputs, "mount-propagation").said, ContainsSubstring(folder));
  shared.reset();
  CHECK(find(inputs, "mount-propagation").verdict == Grade::failure);
  CHECK_THAT(find(inputs, "mount-propagation").said, ContainsSubstring(folder));
}

TEST_CASE("without an orchestrator the doctor says nothing of kubelet's mounts, nor of its registration") {
  auto inputs = healthy();
  inputs.options.standalone = true;
  inputs.options.kubelet_dir = "/";
  inputs.propagation.clear();
  CHECK(find(inputs, "mount-propagation").verdict == Grade::ok);
  CHECK_THAT(find(inputs, "mount-propagation").said, !ContainsSubstring("mounts below"));
  inputs.status.reset();
  CHECK(find(inputs, "registration").said == "no such finding");
  CHECK(find(inputs, "status").verdict == Grade::warning);
}

TEST_CASE("a missing folder, which the agent will create, is a warning, and an unusable one is a failure") {
  auto inputs = healthy();
  inputs.state_dir_writable = inputs.runtime_dir = Error{errc::not_found, "x does not exist"};
  CHECK(find(inputs, "state-dir").verdict == Grade::warning);
  CHECK(find(inputs, "runtime-dir").verdict == Grade::warning);
  inputs.state_dir_writable = Error{errc::state_write, "read-only"};
  inputs.runtime_dir = Error{errc::failed_precondition, "not on tmpfs"};
  CHECK(find(inputs, "state-dir").verdict == Grade::failure);
  CHECK(find(inputs, "runtime-dir").verdict == Grade::failure);
}

TEST_CASE("config.json must list clusters with monitors") {
  auto inputs = healthy();
  inputs.clusters->push_back({"test", {}, "", {}});
  CHECK(find(inputs, "config.json").verdict == Grade::failure);
  CHECK_THAT(find(inputs, "config.json").said, ContainsSubstring("test"));
  inputs.clusters->clear();
  CHECK(find(inputs, "config.json").verdict == Grade::failure);
  inputs.clusters = Error{errc::invalid_argument, "not JSON"};
  CHECK(find(inputs, "config.json").verdict == Grade::failure);
}

TEST_CASE("an invalid mounters.json is a failure, and no rules at all give no finding") {
  auto inputs = healthy();
  const auto named = [&] {
    return std::ranges::count(judge(inputs), std::string("mounters.json"), [](const auto& one) { return one.check; });
  };
  CHECK(named() == 0);
  inputs.mounters->push_back({});
  CHECK(find(inputs, "mounters.json").verdict == Grade::ok);
  inputs.mounters = Error{errc::invalid_argument, "rule 1: \"x\" is not known"};
  CHECK(find(inputs, "mounters.json").verdict == Grade::failure);
}

TEST_CASE("one silent monitor is a warning that names it, and a cluster with only silent monitors is a failure") {
  auto inputs = healthy();
  inputs.monitors[1].answers = false;
  CHECK(find(inputs, "monitors of prod").verdict == Grade::warning);
  CHECK_THAT(find(inputs, "monitors of prod").said, ContainsSubstring("m2") && !ContainsSubstring("m1"));
  inputs.monitors[0].answers = false;
  CHECK(find(inputs, "monitors of prod").verdict == Grade::failure);
}

TEST_CASE("a device without a server, a record or an agent is a warning, and the finding counts the waiting requests") {
  auto inputs = healthy();
  inputs.devices = {{0, "v1", false, 2}, {1, "gone", true, 0}, {2, "", false, 0}, {3, "", true, 0}};
  CHECK(find(inputs, "/dev/nbd0").said == "no such finding");
  CHECK(find(inputs, "/dev/nbd1").verdict == Grade::warning);
  CHECK(find(inputs, "/dev/nbd2").verdict == Grade::warning);
  CHECK(find(inputs, "/dev/nbd3").said == "no such finding");
  inputs.admin = inputs.csi = Error{errc::unavailable, "nobody"};
  CHECK_THAT(find(inputs, "/dev/nbd0").said, ContainsSubstring("v1") && ContainsSubstring("2 requests wait"));
}

TEST_CASE("monitor addresses are parsed in every form that ceph-csi's config.json can have") {
  using All = std::vector<Endpoint>;
  CHECK(endpoints_of("10.0.0.1:6789") == All{{"10.0.0.1", "6789"}});
  CHECK(endpoints_of("10.0.0.1") == All{{"10.0.0.1", "3300"}, {"10.0.0.1", "6789"}});
  CHECK(endpoints_of("v2:10.0.0.1:3300/0") == All{{"10.0.0.1", "3300"}});
  CHECK(endpoints_of("[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]") == All{{"10.0.0.1", "3300"}, {"10.0.0.1", "6789"}});
  CHECK(endpoints_of("[fd00::1]:6789") == All{{"fd00::1", "6789"}});
  CHECK(endpoints_of("[v2:[fd00::1]:3300]") == All{{"fd00::1", "3300"}});
  CHECK(endpoints_of("fd00::1") == All{{"fd00::1", "3300"}, {"fd00::1", "6789"}});
  CHECK(endpoints_of("mon.example:3300") == All{{"mon.example", "3300"}});
  CHECK(endpoints_of("").empty());
}

TEST_CASE("secrets are redacted from JSON by name and by shape, and nothing else is") {
  const auto clean = redacted_json(boost::json::parse(R"({
    "clusterID": "prod", "userKey": "canary-1", "nested": [{"adminPassword": "canary-2", "key": {"image_id": "abc"}}],
    "note": "the key is AQDcanary3canary3canary3canary3canary3A== so", "TOKEN": 4711, "monitors": ["10.0.0.1:6789"]})"));
  const auto text = boost::json::serialize(clean);
  CHECK_THAT(text, !ContainsSubstring("canary") && !ContainsSubstring("4711"));
  CHECK_THAT(text, ContainsSubstring("\"image_id\":\"abc\"") && ContainsSubstring("10.0.0.1:6789") &&
                       ContainsSubstring("the key is <redacted> so"));
}

TEST_CASE("secrets are redacted from other text by name and by shape, and nothing else is") {
  const auto clean = redacted_text(
      "30 21 0:5 / /mnt rw - cifs //srv/x rw,username=u,password=canary1,secretfile=canary2 ok\n"
      "key = AQDcanary3canary3canary3canary3canary3A==\nuser_key=canary4");
  CHECK_THAT(clean, !ContainsSubstring("canary"));
  CHECK_THAT(clean, ContainsSubstring("username=u,password=<redacted>,") && ContainsSubstring(" ok\n"));
  const std::string mounts = "21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n";
  CHECK(redacted_text(mounts) == mounts);
}

TEST_CASE("an agent of another version is a warning that says that a reload hands over") {
  auto inputs = healthy();
  inputs.status->mutable_program()->set_version("0.1.0");
  const auto found = find(inputs, "versions");
  CHECK(found.verdict == Grade::warning);
  CHECK(found.said == "this program is 0.2.0 (abc), the agent and its keeper are 0.1.0 (abc); they are compatible");
  CHECK(found.remedy.find("systemctl reload corbd") != std::string::npos);
}

TEST_CASE("another build of the same version is told too") {
  auto inputs = healthy();
  inputs.status->mutable_program()->set_commit("def");
  CHECK(find(inputs, "versions").verdict == Grade::warning);
}

TEST_CASE("an agent with another handover protocol is not compatible with this program") {
  auto inputs = healthy();
  inputs.status->mutable_program()->set_version("0.1.0");
  inputs.status->mutable_program()->set_handover_protocol(1);
  const auto found = find(inputs, "versions");
  CHECK(found.said.find("not compatible: the agent has handover protocol 1, this program has 2") != std::string::npos);
  CHECK(found.remedy.find("corbd drain") != std::string::npos);
}

TEST_CASE("an agent with newer records is not compatible with this program, and one with older records is") {
  v1::Program older, newer;
  older.set_record_version(1);
  newer.set_record_version(2);
  CHECK(cannot_follow(newer, older) ==
        "the agent may have written records of version 2, this program reads only up to 1");
  CHECK(cannot_follow(older, newer).empty());
}

TEST_CASE("without an agent only this program's version is told") {
  auto inputs = healthy();
  inputs.status.reset();
  CHECK(find(inputs, "versions").said == "this program is 0.2.0 (abc)");
}

TEST_CASE("a librbd with a bug that loses data is a warning that names the bug and a cured release") {
  struct Row {
    const char* release;
    bool flatten, snapshots;
  };
  for (const auto& [release, flatten, snapshots] :
       {Row{"16.2.11", true, true}, Row{"16.2.15", true, false}, Row{"17.2.6", true, true}, Row{"18.2.4", true, false},
        Row{"18.2.5", false, false}, Row{"19.2.0", true, false}, Row{"19.2.1", false, false},
        Row{"20.2.0", false, false}, Row{"", false, false}}) {
    INFO(release);
    Inputs inputs = healthy();
    inputs.ceph_release = release;
    const auto finding = find(inputs, "librbd");
    CHECK((finding.verdict == Grade::warning) == (flatten || snapshots));
    CHECK((finding.said.find("tracker 68998") != std::string::npos) == flatten);
    CHECK((finding.said.find("tracker 61616") != std::string::npos) == snapshots);
    if (flatten) CHECK_THAT(finding.remedy, ContainsSubstring("18.2.5"));
  }
}

TEST_CASE("a ceph.conf with split replica reads is a warning") {
  Inputs inputs = healthy();
  inputs.split_reads = "0";
  CHECK(find(inputs, "split-reads").verdict == Grade::ok);
  inputs.split_reads = "262144";
  CHECK(find(inputs, "split-reads").verdict == Grade::warning);
  CHECK_THAT(find(inputs, "split-reads").remedy, ContainsSubstring("ceph config rm"));
}

TEST_CASE("a device that the host's LVM has activated is a warning with the group, and its remedy names vgchange",
          "[failure:244]") {
  auto inputs = healthy();
  inputs.devices.front().volume_groups = {"vg-1"};
  const auto found = find(inputs, "lvm /dev/nbd0");
  CHECK(found.verdict == Grade::warning);
  CHECK_THAT(found.said, ContainsSubstring("vg-1"));
  CHECK_THAT(found.remedy, ContainsSubstring("vgchange -an vg-1") && ContainsSubstring("global_filter"));
}

TEST_CASE("a filter of LVM counts only if it is set and names nbd devices") {
  const auto scanned = [](std::string_view conf) { return listed(view_of_lvm(conf, std::nullopt).scanned); };
  CHECK(scanned("devices {\n\tglobal_filter = [ \"r|/dev/nbd.*|\", \"r|/dev/rbd.*|\" ]\n}\n").empty());
  CHECK(scanned("devices {\n global_filter = [\n  \"a|/dev/sd|\",\n  \"r|.*|\"\n ]\n}\n").empty());
  CHECK(scanned("  filter=[\"r|nbd|\"]") == "rbd");
  CHECK(scanned("filter = \"r/(nbd|rbd)[0-9]+/\"\n").empty());
  CHECK(scanned("devices/global_filter = [ \"r|^/dev/nbd|\" ]\n") == "rbd");
  CHECK(scanned("# global_filter = [ \"r|/dev/nbd.*|\" ]\n") == "nbd, rbd");
  CHECK(scanned("global_filter = [ \"a|.*|\" ]\n# nbd\n") == "nbd, rbd");
  CHECK(scanned("global_filter = [ \"a|/dev/nbd|\", \"r|.*|\" ]\n") == "nbd");
  CHECK(scanned("filter = [ \"r|bd|\" ]\nfilter = [ \"a|.*|\" ]\n") == "nbd, rbd");
  CHECK(scanned("filter = [ \"r|(|\", \"r\", \"r|bd\" ]\n").empty());
}

TEST_CASE("with LVM's devices file only the devices in it are seen, and the filters do not count") {
  const std::string conf = "devices {\n use_devicesfile = 1\n filter = [ \"r|bd|\" ]\n}\n";
  const std::string file = "VERSION=1.1.2\nIDTYPE=sys_wwid IDNAME=naa.5 DEVNAME=/dev/sda2 PVID=x\n";
  CHECK(view_of_lvm(conf, file).scanned.empty());
  CHECK(view_of_lvm(conf, file).by == "the devices file");
  CHECK(view_of_lvm(conf, file + "IDTYPE=devname IDNAME=/dev/nbd0 DEVNAME=/dev/nbd0 PVID=y\n").scanned.front() ==
        "nbd");
  CHECK(view_of_lvm("use_devicesfile = 1\n", std::nullopt).scanned.size() == 2);
  CHECK(view_of_lvm("use_devicesfile = 0\n", file).scanned.size() == 2);
  CHECK(view_of_lvm("# use_devicesfile = 1\n", file).scanned.size() == 2);
}

TEST_CASE("an LVM that looks into the devices of volumes is a warning where a volume is raw block") {
  auto inputs = healthy();
  inputs.lvm = LvmView{{"nbd", "rbd"}, ""};
  CHECK_THAT(find(inputs, "lvm").said, ContainsSubstring("nbd and rbd"));
  CHECK(find(inputs, "lvm").verdict == Grade::ok);
  inputs.records.blocks = {"v1"};
  CHECK(find(inputs, "lvm").verdict == Grade::warning);
  CHECK_THAT(find(inputs, "lvm").remedy, ContainsSubstring("global_filter"));
  inputs.lvm = LvmView{{}, "global_filter"};
  CHECK(find(inputs, "lvm").verdict == Grade::ok);
}

TEST_CASE("a number that was left read-only is told of, and under a writable volume it is a warning with the command",
          "[failure:241]") {
  auto inputs = healthy();
  inputs.read_only_numbers = {2, 5};
  CHECK_THAT(find(inputs, "read-only-numbers").said, ContainsSubstring("/dev/nbd2, /dev/nbd5"));
  CHECK(find(inputs, "read-only-numbers").verdict == Grade::ok);
  inputs.devices.front().read_only = true;
  CHECK_THAT(find(inputs, "/dev/nbd0").remedy, ContainsSubstring("blockdev --setrw /dev/nbd0"));
  inputs.records.read_only = {"v1"};
  CHECK(find(inputs, "/dev/nbd0").said == "no such finding");
}
