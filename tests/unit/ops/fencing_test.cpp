// corbd holders, take and fence against an agent: what goes to stdout, what to stderr, and the exit code.
#include <boost/json/parse.hpp>
#include <fstream>

#include "corbd/ops/admin.hpp"
#include "support/catch.hpp"
#include "support/command_line.hpp"
#include "support/control_thread.hpp"
#include "support/folder.hpp"
#include "support/monitors.hpp"
#include "support/scripted_volumes.hpp"

using namespace corbd;

namespace {

class Volumes final : public test::ScriptedVolumes {
 public:
  task<result<volume::Holding>> take_image(volume::ImageAt at, Until until) override {
    taken = taken || at.volume_id != "unknown";
    return holders(std::move(at), until);
  }
  task<result<volume::Holding>> holders(volume::ImageAt at, Until) override {
    asked = at;
    if (at.volume_id == "unknown") co_return Error{errc::not_found, "volume unknown has no record on this node"};
    volume::Holding found{{"fsid", 1, "", "id-1"}, true, {}, dirty};
    if (!nobody) found.holders.push_back(holder);
    co_return found;
  }
  task<volume::Users> users(std::string, Until) override {
    co_return volume::Users{
        {{"pool/image-1", "10.0.0.7:0/5", "client.7"}, {"pool/image-2", "10.1.0.7:0/5", "client.8"}},
        {"pool other: no key"}};
  }
  plan::Holder holder{
      .address = "10.0.0.7:0/5",
      .client = "client.7",
      .watches = true,
      .locks = true,
      .cookie = "auto 1",
      .node = {.state = plan::HolderNode::State::not_ready, .name = "node-7", .since = "now", .attached = true}};
  volume::ImageAt asked;
  bool taken = false, nobody = false, dirty = false;
};

class Scene {
 public:
  Scene() {
    monitors.now.own = {"10.0.0.9:0/1"};
    ops::AdminConfig config;
    config.runtime_dir = folder_.path();
    ops::AdminSources sources{volumes, healer_, {}, {}, {}, {}};
    sources.fencer = &fencer_;
    server_ = std::make_unique<ops::Admin>(thread_.control(), *clock_, sources, config);
    REQUIRE(server_->start());
    thread_.start();
    std::ofstream(folder_.path() + "/key") << "the-key\n";
  }
  ~Scene() {
    thread_.finish(server_->stop({clock_->now() + std::chrono::seconds(2)}));
    thread_.finish(healer_.stop());
    thread_.call([this] { server_.reset(); });
    thread_.end();
  }
  test::Answer ask(std::vector<std::string> words) {
    words.insert(words.end(), {"--runtime-dir", folder_.path(), "--cluster", "lab", "--user", "fencer", "--key-file",
                               folder_.path() + "/key"});
    return test::answer_to(words);
  }

 private:
  test::Folder folder_;
  test::ControlThread thread_;
  std::unique_ptr<Clock> clock_ = make_real_clock(thread_.control());

 public:
  Volumes volumes;
  test::Monitors monitors;
  fence::NodeWriters node;

 private:
  heal::Healer healer_{thread_.control(), *clock_, volumes, {}};
  task<fence::NodeWriters> look() { co_return node; }
  fence::Fencer fencer_{
      monitors,
      [](const std::string&) -> result<std::vector<std::string>> { return std::vector<std::string>{"10.0.0.1"}; },
      [this](Until) { return look(); }};
  std::unique_ptr<ops::Admin> server_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("corbd holders says who has an image, on which node, and what is known of that") {
  Scene scene;
  const auto answer = scene.ask({"holders", "volume-1"});
  CHECK(answer.code == 0);
  for (const char* part : {"fsid/1//id-1, with exclusive-lock", "client.7 at 10.0.0.7:0/5 on node node-7",
                           "not ready since now", "has it open and locked, lock auto 1"})
    CHECK(has(answer.out, part));
  CHECK(scene.volumes.asked.volume_id == "volume-1");
  CHECK_FALSE(scene.volumes.taken);
  const auto json = boost::json::parse(scene.ask({"holders", "volume-1", "-o", "json"}).out).as_object();
  const auto& holder = json.at("holders").as_array().front().as_object();
  CHECK(holder.at("node") == "node-7");
  CHECK(holder.at("node_state") == "not-ready");
  CHECK(holder.at("attached") == true);
  scene.volumes.nobody = true;
  CHECK(has(scene.ask({"holders", "volume-1"}).out, "no other client"));
}

TEST_CASE("the holders of an image by name are read as the user whose key the file has") {
  Scene scene;
  CHECK(scene.ask({"holders", "pool/space/image"}).code == 0);
  CHECK(scene.volumes.asked.name.text() == "pool/space/image");
  CHECK(scene.volumes.asked.user == "fencer");
  CHECK(scene.volumes.asked.key == Secret("the-key"));
  CHECK(scene.volumes.asked.cluster_id == "lab");
  for (const char* wrong : {"/image", "pool/", "a/b/c/d"}) {
    const auto answer = scene.ask({"holders", wrong});
    CHECK(answer.code == 1);
    CHECK(has(answer.problems, "POOL/IMAGE"));
  }
  CHECK(has(scene.ask({"holders", "unknown"}).problems, "no record"));
}

TEST_CASE("corbd take shows whom it would cut off, and does it only when it is confirmed") {
  Scene scene;
  const auto shown = scene.ask({"take", "volume-1"});
  CHECK(shown.code == 1);
  CHECK(has(shown.out, "client.7"));
  CHECK(has(shown.problems, "nothing was done"));
  CHECK_FALSE(scene.volumes.taken);
  const auto done = scene.ask({"take", "volume-1", "--yes-really"});
  CHECK(done.code == 0);
  CHECK(has(done.out, "cut off: client.7"));
  CHECK(scene.volumes.taken);
}

TEST_CASE("corbd holders and take tell of a dirty cache, and only a flag of its own gives its writes up") {
  Scene scene;
  scene.volumes.dirty = true;
  for (const char* command : {"holders", "take"}) CHECK(has(scene.ask({command, "volume-1"}).out, "dirty-cache"));
  CHECK(scene.ask({"take", "volume-1", "--force", "--yes-really"}).code == 0);
  CHECK_FALSE(scene.volumes.asked.also_dirty);
  CHECK(scene.ask({"take", "volume-1", "--also-dirty", "--yes-really"}).code == 0);
  CHECK(scene.volumes.asked.also_dirty);
}

TEST_CASE("corbd fence add shows what it cuts off, and does it only when it is confirmed") {
  Scene scene;
  const auto shown = scene.ask({"fence", "add", "10.0.0.0/24"});
  CHECK(shown.code == 1);
  for (const char* part : {"would fence: 10.0.0.0/24", "client.7 at 10.0.0.7:0/5, which has pool/image-1 open",
                           "own client 10.0.0.9:0/1", "not looked at: pool other"})
    CHECK(has(shown.out, part));
  CHECK_FALSE(has(shown.out, "image-2"));
  CHECK(has(shown.problems, "nothing was done"));
  CHECK(scene.monitors.now.entries.empty());
  CHECK(scene.ask({"fence", "add", "10.0.0.0/24", "--yes-really"}).code == 1);
  CHECK(scene.monitors.now.entries.empty());
  CHECK(scene.ask({"fence", "add", "10.0.0.7/32", "--yes-really"}).out == "fenced: 10.0.0.7/32\n");
  CHECK(scene.monitors.asked_as == "fencer the-key");
  CHECK(scene.ask({"fence", "add", "10.0.0.0/24", "--yes-really", "--force"}).code == 0);
  CHECK(scene.monitors.now.entries.size() == 2);
}

TEST_CASE("corbd fence ls has every entry, and fence rm takes one away when it is confirmed") {
  Scene scene;
  scene.monitors.now.entries = {image::entry_of_range(image::AddressBlock::parse("10.0.0.0/24").value()),
                                image::entry_of_client("10.1.0.7:0/5").value()};
  const auto listed = scene.ask({"fence", "ls"});
  CHECK(listed.code == 0);
  CHECK(has(listed.out, "10.0.0.0/24    range"));
  CHECK(has(listed.out, "10.1.0.7:0/5   client"));
  CHECK(has(listed.out, "yes"));
  CHECK(scene.ask({"fence", "rm", "10.0.0.0/24"}).code == 1);
  CHECK(scene.monitors.now.entries.size() == 2);
  CHECK(scene.ask({"fence", "rm", "10.0.0.0/24", "--yes-really"}).out == "unfenced: 10.0.0.0/24\n");
  CHECK(scene.ask({"fence", "rm", "10.0.0.0/24", "--yes-really"}).out == "these blocks have no fence of their own\n");
}

TEST_CASE("corbd unfence says what keeps the node out, and lets it in once it is clean and that is confirmed") {
  Scene scene;
  CHECK(scene.ask({"unfence", "--self-check"}).out == "no fence covers a client of this node\n");
  scene.monitors.now.entries = {image::entry_of_range(image::AddressBlock::parse("10.0.0.9/32").value())};
  scene.monitors.clients = image::OwnClients{.known = {"10.0.0.9:0/1"}};
  scene.node.programs = {"rbd-nbd, process 7"};
  const auto unclean = scene.ask({"unfence", "--self-check", "--yes-really"});
  CHECK(unclean.code == 1);
  CHECK(has(unclean.out, "unclean: 10.0.0.9/32, until "));
  CHECK(has(unclean.out, "\n  rbd-nbd, process 7 has a Ceph client: end it\n"));
  CHECK(has(unclean.problems, "Those that are not clean stay"));
  CHECK(scene.monitors.listed().size() == 1);
  scene.node.programs.clear();
  const auto looked = scene.ask({"unfence", "--self-check"});
  CHECK(looked.code == 0);
  CHECK(looked.out.starts_with("clean: 10.0.0.9/32, until "));
  CHECK(has(looked.problems, "nothing was unfenced"));
  CHECK(scene.monitors.listed().size() == 1);
  const auto json = boost::json::parse(scene.ask({"unfence", "--self-check", "-o", "json"}).out).as_object();
  CHECK(json.at("fences").as_array().front().as_object().at("verdict") == "clean");
  const auto done = scene.ask({"unfence", "--self-check", "--yes-really"});
  CHECK(done.code == 0);
  CHECK(has(done.out, "unfenced: 10.0.0.9/32\n"));
  CHECK(scene.monitors.listed().empty());
}
