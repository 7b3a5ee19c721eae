// What an agent learns from the files of earlier ones, and what it does until it has.
#include "earlier_agents.hpp"

#include <filesystem>

#include "connecting.hpp"
#include "corbd/core/file.hpp"

using namespace corbd;
using test::eventually;
using namespace std::chrono_literals;
using Scene = test::Connecting;

TEST_CASE("a next agent that cannot read an incarnation beside the one that serves says so, and reads it later",
          "[failure:230]") {
  Scene scene;
  scene.begin_anew({.incarnations_dir = scene.folder.path(), .predecessor_running = true});
  const std::string file = rbd::incarnation_file(scene.folder.path(), "newer");
  REQUIRE(write_durably(file, R"({"version":99,"uuid":"newer"})", 0600));
  CHECK(scene.reload_predecessor_clients(false).error().code == errc::state_newer);
  std::filesystem::remove(file);
  CHECK(scene.reload_predecessor_clients(false));
  CHECK(scene.connections->fencing().all_fenced("fsid of lab"));
}

TEST_CASE("no image is opened while an incarnation cannot be read, and images are once it can be", "[failure:230]") {
  Scene scene;
  const std::string file = rbd::incarnation_file(scene.folder.path(), "newer");
  REQUIRE(write_durably(file, R"({"version":99,"uuid":"newer"})", 0600));
  const bool at_start = GENERATE(true, false);
  if (at_start)
    scene.begin_anew({scene.folder.path()});
  else
    CHECK_FALSE(scene.reload_predecessor_clients(true));
  for (int i = 0; i < 3; ++i) scene.loop.clock.advance(1min);
  CHECK(scene.connections->fencing().all_fenced("fsid of lab").error().code == errc::state_newer);
  rbd::Incarnation left{rbd::Incarnation::State::dead, "left", "fsid of lab", "lab", {"10.0.0.1:0/9"}, 0};
  REQUIRE(rbd::save_incarnation(scene.folder.path(), left));
  std::filesystem::remove(file);
  CHECK(eventually(scene.loop.io, [&] {
    scene.loop.clock.advance(1min);
    return scene.connections->incarnations().unfenced("fsid of lab").size() == 1;
  }));
  CHECK(scene.connections->fencing().all_fenced("fsid of lab").error().code == errc::unavailable);
}

TEST_CASE(
    "an agent renews its predecessor's short entries from its start, or once a predecessor that still serves has "
    "ended",
    "[failure:164]") {
  const bool beside = GENERATE(false, true);
  Scene scene;
  REQUIRE(rbd::save_short_entry(scene.folder.path(), {"5e1f", "fsid of lab", "lab", "10.0.0.7:0/5"}));
  scene.begin_anew({.incarnations_dir = scene.folder.path(), .predecessor_running = beside});
  const auto looks_after = [&] { return !scene.connections->quiet(); };
  CHECK(looks_after() == !beside);
  if (!beside) return;
  REQUIRE(scene.reload_predecessor_clients(true));
  CHECK(looks_after());
}

TEST_CASE("no image is opened while a note of a short entry cannot be read, and images are once it can be",
          "[failure:164]") {
  Scene scene;
  const std::string unreadable = scene.folder.path() + "/unreadable.short";
  std::filesystem::create_directory(unreadable);
  scene.begin_anew({scene.folder.path()});
  CHECK_THAT(scene.connections->fencing().all_fenced("fsid of lab").error().text, ContainsSubstring(unreadable));
  std::filesystem::remove(unreadable);
  CHECK(eventually(scene.loop.io, [&] {
    scene.loop.clock.advance(1min);
    return scene.connections->fencing().all_fenced("fsid of lab").has_value();
  }));
}

TEST_CASE("an agent that meets a malformed note of a short entry fences the dead clients of earlier agents again",
          "[failure:164]") {
  Scene scene;
  using State = rbd::Incarnation::State;
  const std::string boot = "boot";
  const rbd::Incarnation cut_off{State::fenced, "cut-off", "fsid of lab", "lab", {"10.0.0.1:0/8"}, 1, boot};
  const rbd::Incarnation ended{State::fenced, "ended", "fsid of lab", "lab", {"10.0.0.1:0/9"}, 1, boot, true};
  for (const auto& one : {cut_off, ended}) REQUIRE(rbd::save_incarnation(scene.folder.path(), one));
  REQUIRE(write_durably(scene.folder.path() + "/malformed.short", "{", 0600));
  const bool beside = GENERATE(false, true);
  scene.begin_anew({.incarnations_dir = scene.folder.path(), .boot_id = boot, .predecessor_running = beside});
  const auto unfenced = [&] { return scene.connections->incarnations().unfenced("fsid of lab"); };
  if (beside) {
    CHECK(unfenced().empty());
    REQUIRE(scene.reload_predecessor_clients(true));
  }
  REQUIRE(unfenced().size() == 1);
  CHECK(unfenced().front().uuid == "cut-off");
}
