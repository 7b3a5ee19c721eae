// `corbd doctor` before a change of the node plugin, as a process: what it prints, and its exit code.
#include <sys/wait.h>

#include <boost/json/parse.hpp>
#include <cstdlib>

#include "agent.hpp"
#include "support/places.hpp"

using namespace corbd;
using test::Ground;
namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr const char* kKernelStash =
    R"({"Version":3,"pool":"rbd","radosNamespace":"","image":"csi-vol-1","unmapOptions":"","accessType":false,"encrypted":false,"device":""})";

struct Said {
  int code = -1;
  std::string out;
};

Said said_by(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  Said said;
  for (int byte = ::fgetc(pipe); byte != EOF; byte = ::fgetc(pipe)) said.out.push_back(static_cast<char>(byte));
  const int status = ::pclose(pipe);
  said.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return said;
}

/// A host's root folder in which the kernel serves a volume that ceph-csi staged, or which has no volume.
class Host {
 public:
  explicit Host(const std::string& stash) {
    for (const char* name : {"/proc/1", "/sys/module/nbd", "/sys/block", "/sys/dev/block", "/var/lib/kubelet/plugins"})
      fs::create_directories(root() + name);
    std::string mounts;
    if (!stash.empty()) {
      const std::string volume = "/var/lib/kubelet/plugins/kubernetes.io/csi/rbd.csi.ceph.com/x";
      put(volume + "/vol_data.json", R"({"driverName":"rbd.csi.ceph.com","volumeHandle":"v1"})");
      put(volume + "/globalmount/image-meta.json", stash);
      mounts = "36 35 252:0 / " + volume + "/globalmount/v1 rw - ext4 /dev/rbd0 rw\n";
      put("/sys/bus/rbd/devices/0/pool", "rbd\n");
      put("/sys/bus/rbd/devices/0/name", "csi-vol-1\n");
      put("/sys/bus/rbd/devices/0/image_id", "1\n");
    }
    put("/proc/1/mountinfo", mounts);
  }
  Said doctor(const std::string& words) const {
    return said_by(std::string("env -u KUBERNETES_SERVICE_HOST -u KUBERNETES_CONFIG_PATH ") + test::corbd_program() +
                   " doctor --root " + root() + " --state-dir /state --config-dir " + ground_.at("config") +
                   " --runtime-dir " + ground_.at("runtime") + " " + words);
  }

 private:
  std::string root() const { return ground_.at("root"); }
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root() + path).parent_path());
    std::ofstream(root() + path) << text;
  }
  const Ground ground_;
};

}  // namespace

TEST_CASE("the doctor's exit code before a change of the node plugin says whether anything blocks it") {
  struct Case {
    std::string stash, words;
    int code;
    std::string says;
  };
  const auto [stash, words, code, says] = GENERATE(values<Case>({
      {"", "--before-migration", 0, "Nothing stands in the way"},
      {"", "--before-rollback", 0, "Nothing stands in the way"},
      // The API server, which this host does not have, knows its attributes.
      {kKernelStash, "--before-migration", 1, "the kernel, without a break"},
      {"{", "--before-migration", 2, "Do not go on"},
      {"{", "--before-rollback", 2, "Do not go on"},
  }));
  INFO(words);
  const auto said = Host(stash).doctor(words);
  CHECK_THAT(said.out, ContainsSubstring(says));
  CHECK(said.code == code);
}

TEST_CASE("the doctor's verdict before a change has a versioned JSON form") {
  const auto said = Host(kKernelStash).doctor("--before-rollback -o json");
  const auto parsed = json::parse(said.out);
  const auto& object = parsed.as_object();
  CHECK(object.at("schema_version") == 1);
  CHECK(object.at("before") == "rollback");
  CHECK(object.at("verdict") == "warning");
  REQUIRE(object.at("volumes").as_array().size() == 1);
  const auto& volume = object.at("volumes").at(0).as_object();
  CHECK(volume.at("volume_id") == "v1");
  CHECK(volume.at("device") == "/dev/rbd0");
  CHECK(volume.at("now") == "the kernel");
}

TEST_CASE("the doctor looks at one change at a time") {
  const auto said = Host("").doctor("--before-migration --before-rollback");
  CHECK(said.code != 0);
  CHECK_THAT(said.out, ContainsSubstring("excludes"));
}

TEST_CASE("the doctor tries mkfs with the --mkfs-options of the agent that runs") {
  const Ground ground;
  test::Agent::Options options;
  options.more = {"--mkfs-options", "xfs:-i nrext64=1"};
  const test::Agent agent(ground, options);
  REQUIRE(agent.answers());
  const auto said = said_by(test::corbd_program() + " doctor -o json --kubelet-dir " + ground.at("kubelet") +
                            " --state-dir " + ground.at("state") + " --runtime-dir " + ground.at("runtime") +
                            " --config-dir " + ground.at("config") + " --endpoint unix://" + ground.at("csi.sock"));
  CHECK_THAT(said.out, ContainsSubstring("mkfs.xfs with --mkfs-options -i nrext64=1 makes nrext64 (Linux 5.19)"));
  CHECK_THAT(said.out, ContainsSubstring("new filesystems mount on Linux 5.14 and newer: ext4"));
  CHECK_THAT(said.out, ContainsSubstring("no filesystem is staged here"));
}
