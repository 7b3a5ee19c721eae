// ceph-csi's own command line.
#include "cephcsi.hpp"

#include <map>
#include <set>

#include "support/catch.hpp"

using namespace corbd;
using cli::Liveness;
using cli::Run;

namespace {

using Words = std::vector<std::string>;

/// The environment of ceph-csi's pod.
struct Pod {
  std::map<std::string, std::string> variables{{"POD_IP", "10.0.0.5"}, {"CSI_ENDPOINT", "unix:///csi/csi.sock"}};
  std::set<std::string> memory{"/tmp/csi/keys"};
  cli::Node node() const {
    return {[this](const char* name) { return variables.contains(name) ? variables.at(name) : std::string(); },
            [this](const std::string& folder) { return memory.contains(folder); }};
  }
  result<cli::Command> command(const Words& words) const {
    const auto given = cli::parse_go(words);
    if (!given) return given.error();
    return cli::cephcsi_command(*given, node());
  }
  Run run(const Words& words) const { return std::get<Run>(command(words).value()); }
  Error refusal(const Words& words) const {
    const auto made = command(words);
    REQUIRE_FALSE(made);
    return made.error();
  }
};

/// deploy/rbd/kubernetes/csi-rbdplugin.yaml
const Words kDaemonSet{"--nodeid=worker-1",
                       "--pluginpath=/var/lib/kubelet/plugins",
                       "--stagingpath=/var/lib/kubelet/plugins/kubernetes.io/csi/",
                       "--type=rbd",
                       "--nodeserver=true",
                       "--endpoint=unix:///csi/csi.sock",
                       "--csi-addons-endpoint=unix:///csi/csi-addons.sock",
                       "--v=5",
                       "--drivername=rbd.csi.ceph.com",
                       "--enableprofiling=false"};

/// Rook's template.
const Words kRook{"--nodeid=worker-1",
                  "--endpoint=unix:///csi/csi.sock",
                  "--v=0",
                  "--type=rbd",
                  "--nodeserver=true",
                  "--drivername=rook-ceph.rbd.csi.ceph.com",
                  "--pidlimit=-1",
                  "--stagingpath=/var/lib/kubelet/plugins/kubernetes.io/csi/",
                  "--csi-addons-endpoint=unix:///csi/csi-addons.sock",
                  "--enable-read-affinity=true",
                  "--crush-location-labels=kubernetes.io/hostname,topology.kubernetes.io/zone",
                  "--logslowopinterval=30s",
                  "--log_file=/csi/log/csi-rbdplugin.log",
                  "--logtostderr=false",
                  "--alsologtostderr=true",
                  "--setmetadata=true"};

Words with(Words words, std::initializer_list<std::string> more) {
  words.insert(words.end(), more);
  return words;
}

cli::Command parsed(Words words) {
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  return cli::parse(static_cast<int>(arguments.size()), arguments.data(), "0");
}

/// `corbd run` with these words.
cli::Command corbd_run(Words words) {
  words.insert(words.begin(), {"corbd", "run", "--nodeid=n"});
  return parsed(std::move(words));
}

}  // namespace

TEST_CASE("the arguments of ceph-csi's DaemonSet start the agent with the directories of that pod") {
  const Run run = Pod().run(kDaemonSet);
  CHECK(run.nodeid == "worker-1");
  CHECK(run.endpoint == "unix:///csi/csi.sock");
  CHECK(run.addons_endpoint == "unix:///csi/csi-addons.sock");
  CHECK(run.drivername == "rbd.csi.ceph.com");
  CHECK(run.state_dir == "/var/lib/kubelet/plugins/rbd.csi.ceph.com/corbd");
  CHECK(run.runtime_dir == "/tmp/csi/keys");
  CHECK(run.kubelet_dir == "/var/lib/kubelet");
  CHECK(run.config_dir == "/etc/ceph-csi-config");
  CHECK(run.metricsport == 0);
  CHECK_FALSE(run.fencing);
  CHECK(run.ignored == Words{"stagingpath", "type", "nodeserver", "v", "enableprofiling"});
}

TEST_CASE("Rook's arguments start the agent, and --pluginpath determines kubelet's directory") {
  const Run run =
      Pod().run(with(kRook, {"--pluginpath=/var/snap/microk8s/common/var/lib/kubelet/plugins/", "--enable-fencing"}));
  CHECK(run.state_dir.ends_with("/rook-ceph.rbd.csi.ceph.com/corbd"));
  CHECK(run.kubelet_dir == "/var/snap/microk8s/common/var/lib/kubelet");
  CHECK(run.fencing);
}

TEST_CASE("HTTP is served on the pod's address, or on every address if the pod's is unknown") {
  const Run run = Pod().run(with(kDaemonSet, {"--metricsport=8090"}));
  CHECK(run.metricsport == 8090);
  CHECK(run.metricsip == "10.0.0.5");
  Pod without;
  without.variables.clear();
  CHECK(without.run(with(kDaemonSet, {"--metricsport=8090"})).metricsip == "0.0.0.0");
}

TEST_CASE(
    "under the name cephcsi, the default mounter is rbd, the kernel client, unless --default-mounter names another "
    "one") {
  CHECK(Pod().run(kDaemonSet).default_mounter == "rbd");
  CHECK(Pod().run(with(kDaemonSet, {"--default-mounter=rbd-nbd"})).default_mounter == "rbd-nbd");
  const auto refused = Pod().refusal(with(kDaemonSet, {"--default-mounter=nbd"}));
  CHECK(refused.code == errc::invalid_argument);
  CHECK_THAT(refused.text, ContainsSubstring("rbd (the kernel client) or rbd-nbd (this agent)"));
}

TEST_CASE("under the name corbd, the default mounter is rbd-nbd unless --default-mounter names another one") {
  CHECK(std::get<Run>(corbd_run({})).default_mounter == "rbd-nbd");
  CHECK(std::get<Run>(corbd_run({"--default-mounter=rbd"})).default_mounter == "rbd");
  CHECK(std::holds_alternative<cli::Exit>(corbd_run({"--default-mounter=krbd"})));
}

TEST_CASE("the default is one io thread, and --io-threads takes only numbers from 1 to 16") {
  CHECK(std::get<Run>(corbd_run({})).io_threads == 1);
  CHECK(std::get<Run>(corbd_run({"--io-threads=16"})).io_threads == 16);
  CHECK(Pod().run(with(kDaemonSet, {"--io-threads=4"})).io_threads == 4);
  const auto* wrong = GENERATE("--io-threads=0", "--io-threads=17", "--io-threads=-1");
  CHECK(std::get<cli::Exit>(corbd_run({wrong})).code != 0);
  const auto refused = Pod().refusal(with(kDaemonSet, {wrong}));
  CHECK(refused.code == errc::invalid_argument);
  CHECK_THAT(refused.text, ContainsSubstring("--io-threads") && ContainsSubstring("from 1 to 16"));
}

TEST_CASE(
    "with ceph-csi's arguments, the agent leaves the registration with kubelet to the sidecar unless --register is "
    "given") {
  CHECK(Pod().run(kDaemonSet).registers == false);
  const Run run = Pod().run(with(
      kDaemonSet, {"--register", "--kubelet-registration-path=/var/lib/kubelet/plugins/rbd.csi.ceph.com/csi.sock"}));
  CHECK(run.registers == true);
  CHECK(run.endpoint_on_host == "/var/lib/kubelet/plugins/rbd.csi.ceph.com/csi.sock");
}

TEST_CASE("`corbd run` leaves open whether the agent registers with kubelet, unless --register decides") {
  const auto registers = [](Words words) {
    words.insert(words.begin(), {"corbd", "run", "--nodeid=n"});
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    return std::get<Run>(cli::parse(static_cast<int>(arguments.size()), arguments.data(), "0")).registers;
  };
  CHECK(registers({}) == std::nullopt);
  CHECK(registers({"--register"}) == true);
  CHECK(registers({"--register=true"}) == true);
  CHECK(registers({"--register=false"}) == false);
}

TEST_CASE("the default path of the CSI-Addons socket is ceph-csi's") {
  CHECK(Pod().run({"--type=rbd", "--nodeserver", "--nodeid=n"}).addons_endpoint == "unix:///tmp/csi-addons.sock");
}

TEST_CASE("the arguments of ceph-csi's controller are refused unless --fencing-only is among them") {
  const Words controller{"--type=rbd", "--controllerserver=true", "--nodeid=n"};
  CHECK(Pod().refusal(controller).text.find("--fencing-only") != std::string::npos);
  CHECK(Pod().run(with(controller, {"--fencing-only"})).fencing_only);
}

TEST_CASE(
    "without ceph-csi's key folder in memory, keys go to /run/corbd, and without either, only --runtime-dir lets the "
    "agent start") {
  Pod pod;
  pod.memory = {"/run/corbd"};
  CHECK(pod.run(kDaemonSet).runtime_dir == "/run/corbd");
  pod.memory.clear();
  const Error refused = pod.refusal(kDaemonSet);
  CHECK(refused.code == errc::failed_precondition);
  CHECK_THAT(refused.text, ContainsSubstring("/tmp/csi/keys") && ContainsSubstring("emptyDir"));
  CHECK(pod.run(with(kDaemonSet, {"--runtime-dir=/memory"})).runtime_dir == "/memory");
}

TEST_CASE("the variable CORBD_RUNTIME_DIR sets the runtime directory unless --runtime-dir does") {
  Pod pod;
  pod.variables["CORBD_RUNTIME_DIR"] = "/run/elsewhere";
  CHECK(pod.run(kDaemonSet).runtime_dir == "/run/elsewhere");
  auto words = kDaemonSet;
  words.push_back("--runtime-dir=/run/given");
  CHECK(pod.run(words).runtime_dir == "/run/given");
}

TEST_CASE("the arguments of ceph-csi's liveness container start a liveness check of the CSI socket") {
  const auto made = Pod().command({"--type=liveness", "--endpoint=unix:///csi/csi.sock", "--metricsport=8680",
                                   "--metricspath=/metrics", "--polltime=1m30s", "--timeout", "3s"});
  const auto& watch = std::get<Liveness>(made.value());
  CHECK(watch.endpoint == "unix:///csi/csi.sock");
  CHECK(watch.address == "10.0.0.5");
  CHECK(watch.port == 8680);
  CHECK(watch.path == "/metrics");
  CHECK(watch.poll == std::chrono::seconds(90));
  CHECK(watch.timeout == std::chrono::seconds(3));
  CHECK(std::get<Liveness>(Pod().command({"--type=liveness"}).value()).port == 8080);
}

TEST_CASE(
    "parts of ceph-csi that corbd does not replace are refused by name, and incomplete arguments are refused too") {
  for (const char* type : {"cephfs", "nfs", "nvmeof", "controller"}) {
    const Error refused = Pod().refusal({"--type=" + std::string(type), "--nodeserver=true", "--nodeid=n"});
    CHECK(refused.code == errc::unimplemented);
    CHECK_THAT(refused.text, ContainsSubstring(type));
  }
  CHECK(Pod().refusal({"--type=rbd", "--controllerserver=true", "--nodeid=n"}).code == errc::unimplemented);
  CHECK(Pod().refusal({"--type=rbd", "--nodeid=n"}).code == errc::invalid_argument);
  CHECK(Pod().refusal({}).code == errc::invalid_argument);
  CHECK(Pod().refusal({"--type=rbd", "--nodeserver=true"}).code == errc::invalid_argument);
}

TEST_CASE("flags follow the grammar of Go's flag package") {
  struct Case {
    Words words;
    std::string nodeid;
    bool verbose;
  };
  const auto [words, nodeid, verbose] = GENERATE(values<Case>({{{"-nodeid=a"}, "a", false},
                                                               {{"--nodeid", "a"}, "a", false},
                                                               {{"-nodeid", "--a"}, "--a", false},
                                                               {{"--nodeid=a=b"}, "a=b", false},
                                                               {{"--nodeid="}, "", false},
                                                               {{"--nodeid=a", "--nodeid=b"}, "b", false},
                                                               {{"--verbose", "--nodeid=a"}, "a", true},
                                                               {{"-verbose=T", "-nodeid=a"}, "a", true},
                                                               {{"--verbose", "--verbose=false"}, "", false}}));
  CAPTURE(words);
  const auto given = cli::parse_go(words);
  REQUIRE(given);
  Run run;
  for (const auto& [flag, value] : *given) REQUIRE(cli::assign(*flag, value, run));
  CHECK(run.nodeid == nodeid);
  CHECK(run.verbose == verbose);
}

TEST_CASE("a mistake in the command line is refused with an error that says what to write instead") {
  struct Case {
    Words words;
    std::string says;
  };
  const auto [words, says] =
      GENERATE(values<Case>({{{"--nodeidd=a"}, "did you mean --nodeid?"},
                             {{"--csi-addon-endpoint=x"}, "did you mean --csi-addons-endpoint?"},
                             {{"--entirely-else=x"}, "--help"},
                             {{"--nodeid"}, "needs a value"},
                             {{"--nodeserver", "true"}, "--nodeserver=true"},
                             {{"word"}, "begins with --"},
                             {{"--"}, "is not a flag"},
                             {{"--nodeserver=yes"}, "true or false"},
                             {{"--v=high"}, "whole number"},
                             {{"--polltime=60"}, "60s"},
                             {{"--type=rdb"}, "did you mean rbd?"},
                             {{"--type=rbd", "--nodeserver", "--nodeid=n", "--metricsport=70000"}, "65535"},
                             {{"--type=rbd", "--nodeserver", "--nodeid=n", "--drivername=a/b"}, "--drivername"},
                             {{"--type=liveness", "--metricspath=metrics"}, "--metricspath"}}));
  CAPTURE(words);
  const Error refused = Pod().refusal(words);
  CHECK(refused.code == errc::invalid_argument);
  CHECK_THAT(refused.text, ContainsSubstring(says));
}

TEST_CASE("every flag of klog and of ceph-csi's other parts is accepted") {
  const Words words{"--alsologtostderr",
                    "--add_dir_header=false",
                    "--log_backtrace_at=:0",
                    "--log_dir=",
                    "--log_file=/l",
                    "--log_file_max_size=1800",
                    "--logtostderr=true",
                    "--one_output",
                    "--skip_headers",
                    "--skip_log_headers",
                    "--stderrthreshold=2",
                    "--v=5",
                    "--vmodule=",
                    "--forcecephkernelclient",
                    "--kernelmountoptions=",
                    "--fusemountoptions=",
                    "--radosnamespacecephfs=",
                    "--automaxprocs",
                    "--feature-gates=SlowGRPCRestart=false",
                    "--rbdhardmaxclonedepth=8",
                    "--rbdsoftmaxclonedepth=4",
                    "--maxsnapshotsonimage=450",
                    "--minsnapshotsonimage=250",
                    "--skipforceflatten",
                    "--clustername=c",
                    "--drivernamespace=d",
                    "--instanceid=default"};
  CHECK(Pod().command(with(kDaemonSet, {})));
  for (const auto& word : words) {
    CAPTURE(word);
    CHECK(Pod().command(with(kDaemonSet, {word})));
  }
}

TEST_CASE("durations are parsed as Go parses them") {
  CHECK(cli::parse_go_duration("1h2m3.5s").value() == std::chrono::milliseconds(3723500));
  CHECK(cli::parse_go_duration("300ms").value() == std::chrono::milliseconds(300));
  CHECK(cli::parse_go_duration("0").value() == std::chrono::milliseconds(0));
  const char* wrong = GENERATE("", "60", "s", "-5s", "1d", "1s2", "1e3s", "inf", "nans");
  CAPTURE(wrong);
  CHECK_FALSE(cli::parse_go_duration(wrong));
}

TEST_CASE("a program named cephcsi accepts ceph-csi's command line and corbd's subcommands") {
  CHECK(std::holds_alternative<cli::Liveness>(parsed({"/usr/local/bin/cephcsi", "-type=liveness"})));
  CHECK(std::holds_alternative<cli::Helper>(parsed({"/usr/local/bin/cephcsi", "helper"})));
  CHECK(std::holds_alternative<cli::Helper>(parsed({"/opt/plugins/corbd-host-volume", "helper"})));
  // The doctor takes the default mounter of an agent with the same program name.
  CHECK(std::get<doctor::Options>(parsed({"/usr/local/bin/cephcsi", "doctor"})).default_mounter ==
        cephcsi::Mounter::krbd);
  CHECK(std::get<doctor::Options>(parsed({"/usr/bin/corbd", "doctor"})).default_mounter == cephcsi::Mounter::nbd);
}

TEST_CASE("`corbd doctor --standalone` uses the paths of an agent without an orchestrator") {
  Words words{"corbd", "doctor", "--standalone", "--runtime-dir", "/r"};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  const auto options = std::get<doctor::Options>(cli::parse(static_cast<int>(arguments.size()), arguments.data(), "0"));
  CHECK(options.endpoint == "unix:///r/csi.sock");
  CHECK(options.state_dir == "/var/lib/corbd/agent");
  CHECK(options.ceph_conf == "/etc/ceph/ceph.conf");
  CHECK(options.kubelet_dir == "/");
  CHECK(options.standalone);
}

TEST_CASE("`corbd doctor` with --before-migration or --before-rollback checks that change and nothing else") {
  const std::string change = GENERATE("--before-migration", "--before-rollback");
  Words words{"corbd", "doctor", change, "--default-mounter", "rbd", "--nodeid", "n"};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  const auto options =
      std::get<migration::Options>(cli::parse(static_cast<int>(arguments.size()), arguments.data(), "0"));
  CHECK(options.rollback == (change == "--before-rollback"));
  CHECK(options.default_mounter == cephcsi::Mounter::krbd);
  CHECK(options.node == "n");
}

TEST_CASE("`corbd run` accepts ceph-csi's flags, and records which of them it ignores") {
  Words words{
      "corbd", "run", "--nodeid=n", "--v=5", "--enable-fencing", "--domainlabels=a/zone", "--topology=a/zone=z"};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  const auto run = std::get<Run>(cli::parse(static_cast<int>(arguments.size()), arguments.data(), "0"));
  CHECK(run.ignored == Words{"v"});
  CHECK(run.fencing);
  CHECK(run.domainlabels == "a/zone");
  CHECK(run.addons_endpoint.empty());
}

TEST_CASE("a link for Nomad stands for the subcommand in each of its operations") {
  for (const char* operation : {"fingerprint", "create", "delete"}) {
    const auto command = parsed({"/opt/plugins/corbd-host-volume", operation});
    REQUIRE(std::holds_alternative<mounting::Options>(command));
    CHECK(std::get<mounting::Options>(command).operation == operation);
  }
}
