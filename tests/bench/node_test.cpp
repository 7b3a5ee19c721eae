// The bench that drives any CSI driver's node service, against a driver that does as it is told.
#include "node.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <boost/json/parse.hpp>
#include <fstream>

#include "corbd/core/file.hpp"
#include "cost.hpp"
#include "unit/host/ground.hpp"
#include "unit/manager/scripted_plugin.hpp"
#include "volumes.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr int kVolumes = 12;

struct Ground {
  Folder folder;
  std::string base = fs::canonical(folder.path());
  std::string root = base + "/root", volumes = base + "/volumes.json", figures = base + "/figures.json";
  Ground() {
    fs::create_directory(root);
    write(R"({"volumes": {"pattern": "vol-{}", "count": 12}, "fstype": "ext4", "secrets": {"userKey": "k"}})");
  }
  ~Ground() {
    for (const auto& target : mounts()) ::umount2(target.c_str(), MNT_DETACH);
  }
  void write(const std::string& text) const { std::ofstream(volumes) << text; }
  bench::NodeAsk ask() const {
    bench::NodeAsk made;
    made.endpoint = "unix://" + base + "/csi.sock";
    made.root = root;
    made.volumes = bench::read_volumes(volumes, root, 0);
    made.at_once = 1;
    made.json = figures;
    return made;
  }
  std::vector<std::string> mounts() const { return test::mount_targets_below(root); }
  json::object figure(const std::string& kind) const {
    const auto all = json::parse(*read_file(figures, 1 << 20));
    for (const auto& one : all.as_array())
      if (one.at("kind").as_string() == kind) return one.as_object();
    FAIL("no figure of " << kind);
    return {};
  }
  bool nothing_left() const { return mounts().empty() && fs::is_empty(root); }
};

/// Says no to every third call of the node service.
ScriptedPlugin::Script every_third(std::shared_ptr<std::atomic<int>> count = std::make_shared<std::atomic<int>>(0)) {
  return [count](const std::string& call, ScriptedPlugin::Context&) -> std::optional<grpc::Status> {
    if (call == "info" || ++*count % 3 != 0) return std::nullopt;
    std::this_thread::sleep_for(300ms);
    return grpc::Status(grpc::StatusCode::INTERNAL, "not the third");
  };
}

}  // namespace

TEST_CASE("every volume is staged, published, asked and taken down again, and nothing is left") {
  if (!may_mount()) return;
  const Ground ground;
  ScriptedPlugin driver(ground.base + "/csi.sock", true);
  auto ask = ground.ask();
  ask.at_once = 4;
  CHECK(bench::node(ask) == 0);
  for (const char* kind : {"stage", "publish", "stats", "unpublish", "unstage"}) {
    CAPTURE(kind);
    const auto figure = ground.figure(kind);
    CHECK(figure.at("calls").to_number<int>() == kVolumes);
    CHECK(figure.at("failed").to_number<int>() == 0);
    CHECK(figure.at("p50_ms").as_double() > 0);
  }
  CHECK(ground.figure("up").at("done").to_number<int>() == kVolumes);
  CHECK(driver.staged.secrets().at("userKey") == "k");
  CHECK(driver.staged.volume_capability().mount().fs_type() == "ext4");
  CHECK(ground.figure("cost").at("processes").to_number<int>() >= 1);
  CHECK(ground.nothing_left());
}

TEST_CASE("calls that a driver fails are counted and named, are in no percentile, and leave nothing behind") {
  if (!may_mount()) return;
  const Ground ground;
  ScriptedPlugin driver(ground.base + "/csi.sock", true);
  driver.say(every_third());
  CHECK(bench::node(ground.ask()) == 1);
  // Stage and publish of one volume, the stage of the next one, which fails, and so on.
  const auto stage = ground.figure("stage");
  CHECK(stage.at("calls").to_number<int>() == kVolumes);
  CHECK(stage.at("failed").to_number<int>() == kVolumes / 2);
  CHECK(stage.at("longest_ms").as_double() < 300);
  CHECK(stage.at("errors").as_object().size() == 1);
  CHECK_THAT(std::string(stage.at("errors").as_object().begin()->key()), ContainsSubstring("not the third"));
  CHECK(ground.figure("up").at("done").to_number<int>() == kVolumes / 2);
  CHECK(ground.figure("unstage").at("failed").to_number<int>() > 0);
  CHECK(ground.nothing_left());
}

TEST_CASE("a signal in the middle of a call leaves nothing mounted") {
  if (!may_mount()) return;
  const Ground ground;
  ScriptedPlugin driver(ground.base + "/csi.sock", true);
  auto count = std::make_shared<std::atomic<int>>(0);
  driver.say([count](const std::string& call, ScriptedPlugin::Context&) -> std::optional<grpc::Status> {
    if (call != "stage" || ++*count != 3) return std::nullopt;
    ::kill(::getpid(), SIGINT);
    std::this_thread::sleep_for(500ms);
    return std::nullopt;  // and it mounts
  });
  CHECK(bench::node(ground.ask()) == 130);
  CHECK(*count == 3);
  CHECK(ground.nothing_left());
}

TEST_CASE("a driver that says that it unmounted and did not is asked again") {
  if (!may_mount()) return;
  const Ground ground;
  ScriptedPlugin driver(ground.base + "/csi.sock", true);
  auto count = std::make_shared<std::atomic<int>>(0);
  driver.say([count](const std::string& call, ScriptedPlugin::Context&) -> std::optional<grpc::Status> {
    if (call != "unpublish" || ++*count != 1) return std::nullopt;
    return grpc::Status::OK;
  });
  CHECK(bench::node(ground.ask()) == 0);
  CHECK(ground.figure("unpublish").at("repeats").to_number<int>() == 1);
  CHECK(ground.nothing_left());
}

TEST_CASE("a volume that the driver does not take down is named and not forgotten") {
  const Ground ground;
  ground.write(R"({"volumes": ["one"]})");
  ScriptedPlugin driver(ground.base + "/csi.sock");
  driver.say([](const std::string& call, ScriptedPlugin::Context&) -> std::optional<grpc::Status> {
    if (call != "unstage") return std::nullopt;
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "in use");
  });
  auto ask = ground.ask();
  ask.taking_down = 1s;
  CHECK(bench::node(ask) == 1);
  CHECK(ground.figure("down").at("done").to_number<int>() == 0);
  CHECK(ground.figure("unstage").at("repeats").to_number<int>() > 0);
}

TEST_CASE("a command runs while all volumes are published, and its failure is the bench's") {
  if (!may_mount()) return;
  const Ground ground;
  ScriptedPlugin driver(ground.base + "/csi.sock", true);
  auto ask = ground.ask();
  ask.command = {"sh", "-c",
                 "while read -r t; do grep -q \" $t \" /proc/self/mountinfo && echo $t; done <$CORBD_BENCH_TARGETS >" +
                     ground.base + "/seen; exit 7"};
  CHECK(bench::node(ask) == 1);
  const auto seen = *read_file(ground.base + "/seen", 1 << 20);
  CHECK(std::ranges::count(seen, '\n') == kVolumes);
  CHECK(ground.nothing_left());
}

TEST_CASE("a volume's own context is added to that of all, and a list that is too short is refused") {
  const Ground ground;
  ground.write(R"({"volume_context": {"pool": "p", "a": "1"}, "block": true,
                   "volumes": ["x", {"id": "y", "volume_context": {"a": "2"}}]})");
  const auto found = bench::read_volumes(ground.volumes, ground.root, 0);
  REQUIRE(found.size() == 2);
  CHECK(found[0].volume_context == manager::Texts{{"pool", "p"}, {"a", "1"}});
  CHECK(found[1].volume_context == manager::Texts{{"pool", "p"}, {"a", "2"}});
  CHECK(found[1].usage.attachment == manager::AccessType::block);
  CHECK(bench::read_volumes(ground.volumes, ground.root, 1).size() == 1);
  CHECK_THROWS_WITH(bench::read_volumes(ground.volumes, ground.root, 3), ContainsSubstring("2 volumes"));
}

TEST_CASE("the cost of a driver has its children's in it") {
  const auto alone = bench::cost_of({::getpid()});
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto both = bench::cost_of({::getpid()});
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(alone.processes >= 1);
  CHECK(both.processes == alone.processes + 1);
  CHECK(both.threads == alone.threads + 1);
  CHECK(both.descriptors >= alone.descriptors + 3);
  CHECK(alone.pss_kib > 0);
}
