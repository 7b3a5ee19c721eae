// The subcommands against an agent: what goes to stdout, what to stderr, and the exit code.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "corbd/core/log.hpp"
#include "scene.hpp"
#include "support/command_line.hpp"

using namespace corbd;
using test::Scene;
using volume::Health;
using namespace std::chrono_literals;

namespace {

test::Answer ask(const Scene& scene, std::vector<std::string> words) {
  words.insert(words.end(), {"--runtime-dir", scene.socket().substr(0, scene.socket().rfind('/'))});
  return test::answer_to(words);
}

/// For tests/process/json_output, which holds it against its schema.
std::string kept(const std::string& command, const std::string& document) {
  if (const char* folder = std::getenv("CORBD_JSON_DOCUMENTS"))
    std::ofstream(std::string(folder) + "/" + command + ".json") << document;
  return document;
}

}  // namespace

TEST_CASE("corbd status ends with the verdict as its exit code") {
  const auto [health, code, word] = GENERATE(table<Health, int, std::string>(
      {{Health::staged, 0, "OK"}, {Health::reconnecting, 1, "Warning"}, {Health::lost, 2, "Critical"}}));
  Scene scene;
  scene.volumes.add("1", health);
  scene.start();
  const auto answer = ask(scene, {"status"});
  CHECK(answer.code == code);
  CHECK(answer.out.ends_with("Overall: " + word + "\n"));
  CHECK(answer.problems.empty());
}

TEST_CASE("corbd fsck ends with 0 once no error is left, and with 1 if errors are, and says what the checker said") {
  const bool clean = GENERATE(true, false);
  Scene scene;
  scene.volumes.check.state = volume::ManualCheck::State::done;
  scene.volumes.check.found = host::Inspection{clean, "e2fsck -f -y /dev/nbd0", "11 files"};
  scene.start();
  const auto answer = ask(scene, {"fsck", "1", "--repair"});
  CHECK(answer.code == (clean ? 0 : 1));
  CHECK_THAT(answer.out, ContainsSubstring(clean ? "no error is left" : "errors are left") &&
                             ContainsSubstring("`e2fsck -f -y /dev/nbd0` said: 11 files"));
  const auto json = boost::json::parse(kept("fsck", ask(scene, {"fsck", "1", "-o", "json"}).out));
  CHECK(json.at("state") == "done");
  CHECK(json.at("clean") == clean);
}

TEST_CASE("corbd fsck says what it waits for, and gives up after its time without a stage") {
  Scene scene;
  scene.start();
  const auto answer = ask(scene, {"fsck", "1", "--timeout", "1"});
  CHECK(answer.code == 1);
  CHECK_THAT(answer.problems,
             ContainsSubstring("waiting for the next stage of volume 1") && ContainsSubstring("nothing was done"));
}

TEST_CASE("corbd fsck of a volume in use is refused with the agent's words") {
  Scene scene;
  scene.volumes.outcome = Error{errc::in_use, "its filesystem is mounted at /x"};
  scene.start();
  const auto answer = ask(scene, {"fsck", "1"});
  CHECK(answer.code == 1);
  CHECK_THAT(answer.problems, ContainsSubstring("its filesystem is mounted at /x"));
}

TEST_CASE("corbd top and corbd volume ask for a count of what raw block volumes use") {
  Scene scene;
  auto& volume = scene.volumes.add("1");
  volume.block = true;
  volume.used = volume::UsedBytes{8 << 20, std::chrono::steady_clock::now()};
  scene.start();
  CHECK_THAT(ask(scene, {"volume", "1"}).out, ContainsSubstring("of the image, counted"));
  int counted = 0;
  scene.thread.call([&] { counted = scene.volumes.counted; });
  CHECK(counted == 1);
  CHECK_THAT(ask(scene, {"top", "--once", "--interval", "1"}).out, ContainsSubstring(" 8.4 "));
  scene.thread.call([&] { counted = scene.volumes.counted; });
  CHECK(counted == 3);
}

TEST_CASE("corbd keys ends with 0 once each volume has the user and key that it is to have") {
  Scene scene;
  auto& keys = scene.volumes.add("1").keys;
  keys.present = volume::ShownKey{"old", "aaaaaaaaaaaa", cephcsi::KeyType::aes, {}};
  scene.start();
  CHECK(ask(scene, {"keys"}).code == 0);
  CHECK_THAT(ask(scene, {"keys"}).out, ContainsSubstring("client.old   aaaaaaaaaaaa"));
  scene.thread.call([&] {
    keys.next = volume::ShownKey{"new", "bbbbbbbbbbbb", cephcsi::KeyType::aes256k, {}};
    keys.why_not = "no caps";
  });
  const auto answer = ask(scene, {"keys", "-o", "json"});
  CHECK(answer.code == 1);
  CHECK_THAT(kept("keys", answer.out), ContainsSubstring("no caps"));
}

TEST_CASE("corbd keys says by its exit code whether a Ceph user is needed") {
  Scene scene;
  scene.volumes.add("1").keys.present = volume::ShownKey{"old", "aaaaaaaaaaaa", cephcsi::KeyType::aes, {}};
  scene.start();
  for (const char* user : {"old", "client.old"}) CHECK(ask(scene, {"keys", user}).code == 1);
  const auto answer = ask(scene, {"keys", "client.new", "-o", "json"});
  CHECK(answer.code == 0);
  CHECK_THAT(kept("keys-user", answer.out), ContainsSubstring("nothing on this node needs client.new"));
  // As a script does whose variable is empty.
  for (const char* user : {"", "client."}) CHECK(ask(scene, {"keys", user}).code == 1);
}

TEST_CASE("corbd alive ends with 0 and says nothing as long as the agent answers, however many calls are in flight") {
  Scene scene;
  scene.volumes.add("1");
  scene.volumes.held = true;
  scene.start();
  const auto stub = scene.stub();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<v1::HealResponse> responses(70);
  std::atomic<int> ended{0};
  v1::HealRequest heal;
  heal.set_id("1");
  for (auto& response : responses) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    stub->async()->Heal(contexts.back().get(), &heal, &response, [&](const grpc::Status&) { ++ended; });
  }
  // Six of them are beyond the bound.
  for (int i = 0; i < 20000 && ended < 6; ++i) std::this_thread::sleep_for(1ms);
  const auto answer = ask(scene, {"alive"});
  CHECK(answer.code == 0);
  CHECK((answer.out + answer.problems).empty());
  for (auto& context : contexts) context->TryCancel();
  for (int i = 0; i < 20000 && ended < 70; ++i) std::this_thread::sleep_for(1ms);
  REQUIRE(ended == 70);
}

TEST_CASE("corbd alive ends with 1 when the control thread does not answer in time") {
  std::atomic<bool> go_on{false};  // outlives the thread that reads it
  Scene scene;
  scene.start();
  asio::post(scene.thread.control(), [&] {
    while (!go_on) std::this_thread::sleep_for(1ms);
  });
  const auto answer = ask(scene, {"alive", "--timeout", "1"});
  go_on = true;
  CHECK(answer.code == 1);
  CHECK_THAT(answer.problems, ContainsSubstring("no answer within 1 s"));
}

TEST_CASE("JSON on stdout is one document of what was asked") {
  Scene scene;
  auto& known = scene.volumes.add("1", Health::unproven);
  known.device = 3;
  known.last_error = Error{errc::unproven, "its lock is free"};
  scene.volumes.devices.push_back({"2", 4, {}});
  scene.timelines["1"] = {{{}, "1", Health::staged, Health::unproven, "its link died"}};
  scene.stuck.push_back({"mount /dev/nbd0", 77, {}});
  scene.start();
  const auto status = boost::json::parse(kept("status", ask(scene, {"status", "-o", "json"}).out));
  CHECK(status.at("verdict").as_string() == "critical");
  CHECK(status.at("schema_version").as_int64() == 1);
  const auto volumes = boost::json::parse(kept("volumes", ask(scene, {"volumes", "-o", "json"}).out));
  CHECK(volumes.at("volumes").at(0).at("health").as_string() == "unproven");
  const auto volume = boost::json::parse(kept("volume", ask(scene, {"volume", "1", "-o", "json"}).out));
  CHECK(volume.at("volume").at("id").as_string() == "1");
}

TEST_CASE("corbd top prints a table and ends where its output is no terminal") {
  Scene scene;
  auto& busy = scene.volumes.add("v1");
  busy.pvc = "data";
  busy.pvc_namespace = "shop";
  busy.in_flight = 7;
  scene.start();
  const auto answer = ask(scene, {"top"});
  CHECK(answer.code == 0);
  CHECK(answer.out.starts_with("VOLUME "));
  CHECK_THAT(answer.out, ContainsSubstring("\nshop/data   staged   0"));
  const auto json = boost::json::parse(ask(scene, {"top", "-o", "json"}).out);
  CHECK(json.at("volumes").at(0).at("id").as_string() == "v1");
  CHECK(json.at("volumes").at(0).at("in_flight").to_number<int>() == 7);
}

TEST_CASE("corbd volumes shows a row for each volume") {
  Scene scene;
  scene.volumes.add("v1");
  scene.volumes.add("v2");
  scene.start();
  const auto answer = ask(scene, {"volumes"});
  CHECK(answer.code == 0);
  CHECK_THAT(answer.out, ContainsSubstring("\nv1   pool   <none>      v1      <none>   staged"));
  CHECK_THAT(answer.out, ContainsSubstring("\nv2   ") && !ContainsSubstring("PODS"));
  CHECK_THAT(ask(scene, {"volumes", "-o", "wide"}).out, ContainsSubstring("PODS"));
}

TEST_CASE("a command that changes something says in JSON what it did") {
  Scene scene;
  scene.start();
  const auto drained = boost::json::parse(ask(scene, {"drain", "-o", "json"}).out);
  CHECK(drained.at("draining").as_bool());
  CHECK(drained.at("volume_ids").as_array().empty());
  scene.thread.call([&] { scene.volumes.add("1"); });
  const auto healed = boost::json::parse(ask(scene, {"heal", "1", "-o", "json"}).out);
  CHECK(healed.at("health").as_string() == "staged");
  CHECK(boost::json::parse(ask(scene, {"heal", "-o", "json"}).out).at("health").is_null());
  const auto failed = boost::json::parse(kept("fail", ask(scene, {"fail", "1", "-o", "json", "--yes-really"}).out));
  CHECK(failed.at("volume_ids").at(0).as_string() == "1");
  CHECK(boost::json::parse(ask(scene, {"log-level", "info", "-o", "json"}).out).at("level").as_string() == "info");
}

TEST_CASE("a status of a node that is not ready says so after its verdict") {
  Scene scene;
  scene.facts.registration = {ops::Registration::State::waits, ""};
  scene.start();
  const auto answer = ask(scene, {"status"});
  CHECK(answer.code == 1);
  CHECK(answer.out.ends_with("Overall: Warning, not ready\n"));
}

TEST_CASE("a refusal goes to stderr and ends with 1") {
  Scene scene;
  scene.start();
  for (const char* what : {"volume", "heal"}) {
    const auto answer = ask(scene, {what, "nobody"});
    CHECK(answer.code == 1);
    CHECK(answer.out.empty());
    CHECK_THAT(answer.problems, ContainsSubstring("volume nobody has no record"));
  }
}

TEST_CASE("corbd heal of one volume says how it is afterwards") {
  Scene scene;
  scene.volumes.add("1");
  scene.start();
  const auto answer = ask(scene, {"heal", "1"});
  CHECK(answer.code == 0);
  CHECK(answer.out == "tried to heal volume 1: it is now staged\n");
}

TEST_CASE("corbd heal names those that it tries") {
  Scene scene;
  scene.volumes.add("1", Health::reconnecting);
  scene.start();
  CHECK_THAT(ask(scene, {"heal"}).out, ContainsSubstring("\n1\n"));
}

TEST_CASE("corbd fail gives up the volume once the caller confirms it") {
  Scene scene;
  scene.volumes.add("1");
  scene.start();
  CHECK(ask(scene, {"fail", "1"}).code == 1);
  scene.thread.call([&] { CHECK(scene.volumes.asked.empty()); });
  CHECK(ask(scene, {"fail", "1", "--yes-really"}).code == 0);
  scene.thread.call([&] { CHECK(scene.volumes.asked == std::vector<std::string>{"fail 1"}); });
}

TEST_CASE("corbd drain waits until the last volume is gone, and says who is left") {
  Scene scene;
  scene.volumes.add("1");
  scene.start();
  std::thread unstages([&] {
    while (!scene.cordoned) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    scene.thread.call([&] { scene.volumes.all.clear(); });
  });
  const auto answer = ask(scene, {"drain"});
  unstages.join();
  CHECK(answer.code == 0);
  CHECK_THAT(answer.out, ContainsSubstring("no volume is left"));
  v1::GetStatusResponse said;
  REQUIRE(scene.call(&v1::Admin::Stub::GetStatus, v1::GetStatusRequest(), said).ok());
  CHECK(said.draining());
}

TEST_CASE("corbd log-level sets the level of the running agent's log, and refuses one that does not exist") {
  Scene scene;
  scene.start();
  const std::string file = scene.socket() + ".log";
  const auto logged = [&] {
    const int kept = ::dup(STDERR_FILENO), into = ::open(file.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    ::dup2(into, STDERR_FILENO);
    log::debug("a line for developers");
    ::dup2(kept, STDERR_FILENO);
    ::close(kept);
    ::close(into);
    return std::filesystem::file_size(file) > 0;
  };
  CHECK_FALSE(logged());
  CHECK(ask(scene, {"log-level", "debug"}).code == 0);
  CHECK(logged());
  CHECK(ask(scene, {"log-level", "loud"}).code == 64);
  v1::SetLogLevelRequest loud;
  loud.set_level("loud");
  v1::SetLogLevelResponse none;
  CHECK_THAT(scene.call(&v1::Admin::Stub::SetLogLevel, loud, none).error_message(),
             ContainsSubstring("debug, info, warning or error"));
  CHECK(ask(scene, {"log-level", "info"}).code == 0);
  CHECK_FALSE(logged());
}

TEST_CASE("corbd events shows all that is kept, page by page, and ends") {
  Scene scene;
  scene.start();
  scene.thread.call([&] {
    for (int i = 0; i < 600; ++i)
      scene.server->changed({{}, std::to_string(i), Health::staged, Health::lost, "because"});
  });
  const auto text = ask(scene, {"events"});
  CHECK(text.code == 0);
  CHECK(std::count(text.out.begin(), text.out.end(), '\n') == 600);
  CHECK(text.out.starts_with("1970-01-01T00:00:00Z   0   staged -> lost   because\n"));
  const auto json = ask(scene, {"events", "-o", "json"});
  const auto first = boost::json::parse(json.out.substr(0, json.out.find('\n')));
  CHECK(first.at("to").as_string() == "lost");
}
