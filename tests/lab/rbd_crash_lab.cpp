// Tests the death of a client, and the way back, on a real cluster.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <thread>

#include "rbd_lab.hpp"
#include "support/eventually.hpp"

using namespace corbd;
using namespace corbd::lab;
using Lock = image::Ownership::Lock;

namespace {

std::vector<std::string> names_from(const std::string& list) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < list.size();) {
    const auto comma = std::min(list.find(',', at), list.size());
    names.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return names;
}

/// Opens the images all at once and in parallel takes locks, as healing does. Returns when all are ready to serve.
task<result<std::unique_ptr<image::Image>>> bring_up(Agent& agent, image::Key key) {
  auto image = co_await agent.clusters->open(access(), key, {}, agent.in(30s));
  if (!image) co_return image;
  auto seen = co_await (*image)->ownership(agent.in(30s));
  if (!seen) co_return seen.error();
  if (seen->lock == Lock::our_dead)
    if (auto broken = co_await (*image)->break_dead_lock(seen->owner, kBreakTime, agent.in(30s)); !broken)
      co_return broken.error();
  if (auto locked = co_await (*image)->acquire_lock(agent.in(30s)); !locked) co_return locked.error();
  co_return image;
}

std::vector<std::unique_ptr<image::Image>> bring_up_all(Agent& agent, const std::vector<image::Key>& keys) {
  std::vector<std::unique_ptr<image::Image>> images(keys.size());
  std::size_t left = keys.size();
  for (std::size_t i = 0; i < keys.size(); ++i)
    asio::co_spawn(agent.io(), bring_up(agent, keys[i]),
                   [&images, &left, i](std::exception_ptr, result<std::unique_ptr<image::Image>> image) {
                     if (!image) throw std::runtime_error(image.error().text);
                     images[i] = std::move(*image);
                     --left;
                   });
  while (left > 0) agent.io().run_one();
  return images;
}

std::vector<image::Key> resolve_all(Agent& agent, const std::vector<std::string>& names) {
  std::vector<image::Key> keys;
  for (const auto& name : names) {
    auto found = agent.run(agent.clusters->resolve(access(), {pool_name(), "", name}, agent.in(20s)));
    if (!found) throw std::runtime_error(found.error().text);
    keys.push_back(found->key);
  }
  return keys;
}

/// An agent that holds the images and writes, until it is killed.
struct Writing : Child {
  Writing(const std::string& dir, const std::string& images) : Child(dir, set(images)) {}

 private:
  static const char* set(const std::string& images) {
    ::setenv("CORBD_LAB_CHILD_IMAGES", images.c_str(), 1);
    return "[child]";
  }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("a child agent that writes until it is killed", "[.][child]") {
  const std::string dir = env("CORBD_LAB_CHILD_DIR");
  Agent agent(dir + "/incarnations");
  REQUIRE(agent.run(agent.clusters->fence_dead(access(), agent.in(20s))));
  auto images = bring_up_all(agent, resolve_all(agent, names_from(env("CORBD_LAB_CHILD_IMAGES"))));
  for (auto& image : images) REQUIRE(write(*image, 0, pattern(65536, 7)) == 0);
  std::ofstream(dir + "/ready") << "ready";
  for (unsigned seed = 0;; ++seed) REQUIRE(write(*images.front(), 1 << 20, pattern(65536, seed)) == 0);
}

TEST_CASE("an agent fences its killed predecessor, breaks its lock and writes, at once", "[failure:1][rule:2]") {
  Admin admin;
  admin.create("crash");
  const test::Folder folder;
  Writing child(folder.path(), "crash");
  child.kill();
  const auto start = std::chrono::steady_clock::now();
  Agent agent(folder.path() + "/incarnations");
  const auto key = resolve_all(agent, {"crash"}).front();
  const auto early = agent.run(agent.clusters->open(access(), key, {}, agent.in(20s)));
  REQUIRE_FALSE(early);
  CHECK(early.error().code == errc::unavailable);
  REQUIRE(agent.run(agent.clusters->fence_dead(access(), agent.in(20s))));
  auto image = agent.run(agent.clusters->open(access(), key, {}, agent.in(20s)));
  REQUIRE(image);
  auto seen = agent.ownership(**image);
  REQUIRE(seen);
  CHECK(seen->lock == Lock::our_dead);
  CHECK(seen->foreign_watchers.empty());
  REQUIRE(agent.run((*image)->break_dead_lock(seen->owner, kBreakTime, agent.in(20s))));
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  CHECK(write(**image, 4096, pattern(4096, 9)) == 0);
  const double took = seconds_since(start);
  std::printf("kill to the first write: %.2f s\n", took);
  CHECK(took < 5);
  auto expected = pattern(65536, 7);
  const auto later = pattern(4096, 9);
  std::copy(later.begin(), later.end(), expected.begin() + 4096);
  CHECK(read(**image, 0, 65536) == expected);
  agent.close(**image);
}

TEST_CASE("a second crash, between fencing and breaking, changes nothing", "[rule:2]") {
  Admin admin;
  admin.create("crash2");
  const test::Folder folder;
  Writing child(folder.path(), "crash2");
  child.kill();
  {
    Agent agent(folder.path() + "/incarnations");
    REQUIRE(agent.run(agent.clusters->fence_dead(access(), agent.in(20s))));
    REQUIRE(agent.run(agent.clusters->shutdown(agent.in(20s))));
  }
  Agent agent(folder.path() + "/incarnations");
  auto image = agent.open("crash2");
  REQUIRE(image);
  const auto seen = agent.ownership(**image);
  REQUIRE(seen);
  CHECK(seen->lock == Lock::our_dead);
  REQUIRE(agent.run((*image)->break_dead_lock(seen->owner, kBreakTime, agent.in(20s))));
  CHECK(agent.run((*image)->acquire_lock(agent.in(20s))));
  agent.close(**image);
}

TEST_CASE(
    "breaking a lock leaves a mark until the image is reopened, and the header's version until the lock is taken") {
  Admin admin;
  admin.create("crash4");
  const test::Folder folder;
  Writing child(folder.path(), "crash4");
  child.kill();
  Agent agent(folder.path() + "/incarnations");
  auto image = agent.open("crash4");
  REQUIRE(image);
  const auto seen = agent.ownership(**image);
  REQUIRE(seen);
  REQUIRE(agent.run((*image)->break_dead_lock(seen->owner, kBreakTime, agent.in(20s))));
  const image::Key key = (*image)->key();
  const auto broken = agent.run(agent.clusters->header(access(), key, agent.in(20s)));
  REQUIRE(broken);
  CHECK(broken->break_time == kBreakTime);
  CHECK(broken->version > seen->version);
  const test::Folder elsewhere;
  Agent other(elsewhere.path() + "/incarnations");
  auto again = other.open("crash4");
  REQUIRE(again);
  const auto opened = agent.run(agent.clusters->header(access(), key, agent.in(20s)));
  REQUIRE(opened);
  CHECK(opened->version == broken->version);
  const auto free = agent.ownership(**image);
  REQUIRE(free);
  CHECK(free->lock == Lock::none);
  CHECK(free->version == broken->version);
  REQUIRE(other.run((*again)->acquire_lock(other.in(20s))));
  const auto taken = agent.run(agent.clusters->header(access(), key, agent.in(20s)));
  REQUIRE(taken);
  CHECK(taken->version > broken->version);
  CHECK(taken->break_time != kBreakTime);
  other.close(**again);
  agent.close(**image);
}

TEST_CASE("a kept lock outlives its client's clean end, and the next agent breaks it without a fence",
          "[failure:150]") {
  Admin admin;
  admin.create("kept");
  const test::Folder folder;
  std::string before;
  {
    Agent agent(folder.path() + "/incarnations");
    auto image = agent.open("kept");
    REQUIRE(image);
    REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
    before = (*image)->client();
    REQUIRE(write(**image, 0, pattern(65536, 7)) == 0);
    REQUIRE(agent.run((*image)->keep_lock(agent.in(20s))));
    agent.close(**image);
    image->reset();
    REQUIRE(agent.run(agent.clusters->shutdown(agent.in(20s))));
    CHECK(agent.incarnation_files() == 1);
  }
  Agent agent(folder.path() + "/incarnations");
  const auto key = resolve_all(agent, {"kept"}).front();
  // Nobody is to be fenced.
  auto image = agent.run(agent.clusters->open(access(), key, {}, agent.in(20s)));
  REQUIRE(image);
  const auto seen = agent.ownership(**image);
  REQUIRE(seen);
  CHECK(seen->lock == Lock::our_dead);
  CHECK(seen->owner == before);
  CHECK(seen->foreign_watchers.empty());
  const auto fenced = agent.run(agent.clusters->blocklist(access(), agent.in(20s)));
  REQUIRE(fenced);
  CHECK(fenced->find(before) == nullptr);
  REQUIRE(agent.run((*image)->break_dead_lock(seen->owner, kBreakTime, agent.in(20s))));
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  CHECK(read(**image, 0, 65536) == pattern(65536, 7));
  agent.close(**image);
}

TEST_CASE("another node treats a kept lock as a dead client's, and fences its owner first") {
  Admin admin;
  admin.create("kept2");
  Agent agent;
  auto image = agent.open("kept2");
  REQUIRE(image);
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  const std::string before = (*image)->client();
  REQUIRE(agent.run((*image)->keep_lock(agent.in(20s))));
  agent.close(**image);
  image->reset();
  REQUIRE(agent.run(agent.clusters->shutdown(agent.in(20s))));
  Agent other;
  auto taken = other.open("kept2");
  REQUIRE(taken);
  const auto seen = other.ownership(**taken);
  REQUIRE(seen);
  CHECK(seen->lock == Lock::other);
  const auto refused = other.run((*taken)->acquire_lock(other.in(60s)));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::in_use);
  CHECK_FALSE(other.run((*taken)->break_dead_lock(seen->owner, 0, other.in(20s))));
  const auto owner = image::entry_of_client(seen->owner).value();
  CHECK(owner.client == before);
  REQUIRE(other.run(other.clusters->block(access(), {owner}, std::chrono::hours(24), other.in(20s))));
  REQUIRE(other.run((*taken)->break_dead_lock(seen->owner, 0, other.in(20s))));
  REQUIRE(other.run((*taken)->acquire_lock(other.in(60s))));
  const auto fenced = other.run(other.clusters->blocklist(access(), other.in(20s)));
  REQUIRE(fenced);
  REQUIRE(fenced->find(before) != nullptr);
  // librbd would have cut it off for an hour.
  CHECK(fenced->find(before)->until > std::chrono::system_clock::now() + std::chrono::hours(20));
  other.close(**taken);
}

TEST_CASE("a lock of a client whose incarnation file is lost counts as another's") {
  Admin admin;
  admin.create("crash3");
  const test::Folder folder;
  Writing child(folder.path(), "crash3");
  child.kill();
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() + "/incarnations"))
    std::ofstream(entry.path()) << "{";
  Agent agent(folder.path() + "/incarnations");
  auto image = agent.open("crash3");
  REQUIRE(image);
  CHECK(agent.ownership(**image)->lock == Lock::other);
  agent.close(**image);
}

TEST_CASE("a connection that the cluster blocklisted is replaced, and its lock is still known as ours",
          "[failure:15]") {
  Admin admin;
  admin.create("evicted");
  admin.create("evicted-too");
  Agent agent;
  auto image = agent.open("evicted");
  auto second = agent.open("evicted-too");
  REQUIRE(image);
  REQUIRE(second);
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  auto address = agent.ownership(**image)->owner;
  Admin::check(rados_blocklist_add(admin.cluster, address.data(), 3600));
  // An OSD takes its writes until it has the map with the entry.
  CHECK(test::eventually([&] { return write(**image, 0, pattern(4096, 1)) == -ESHUTDOWN; }));
  const auto key = (*image)->key();
  const auto early = agent.run(agent.clusters->open(access(), key, {}, agent.in(20s)));
  REQUIRE_FALSE(early);
  CHECK(early.error().code == errc::unavailable);
  REQUIRE(agent.run(agent.clusters->fence_dead(access(), agent.in(20s))));
  agent.close(**image);
  auto again = agent.run(agent.clusters->open(access(), key, {}, agent.in(20s)));
  REQUIRE(again);
  const auto seen = agent.ownership(**again);
  REQUIRE(seen);
  CHECK(seen->lock == Lock::our_dead);
  CHECK(seen->owner == address);
  CHECK(seen->foreign_watchers.empty());
  REQUIRE(agent.run((*again)->break_dead_lock(seen->owner, kBreakTime, agent.in(20s))));
  REQUIRE(agent.run((*again)->acquire_lock(agent.in(20s))));
  CHECK(write(**again, 0, pattern(4096, 1)) == 0);
  agent.close(**second);
  agent.close(**again);
  CHECK(agent.run(agent.clusters->shutdown(agent.in(20s))));
  // The evicted one stays known, as fenced.
  CHECK(agent.incarnation_files() == 1);
}

namespace {

bool is_stopped(int pid) {
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task");
  return std::all_of(begin(threads), end(threads), [](const auto& thread) {
    std::ifstream file(thread.path() / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto name_ends = text.rfind(')');
    return name_ends != std::string::npos && text.substr(name_ends + 2, 1) == "T";
  });
}

/// SIGSTOP takes effect once a thread of the process runs. On a busy machine that may be after the next requests.
void stop(int pid) {
  REQUIRE(::kill(pid, SIGSTOP) == 0);
  for (int i = 0; i < 1000 && !is_stopped(pid); ++i) std::this_thread::sleep_for(10ms);
  REQUIRE(is_stopped(pid));
}

}  // namespace

TEST_CASE("a hanging cluster blocks a call, a close and a write, but no caller beyond its deadline",
          "[failure:14][rule:18]") {
  const std::string osd = env("CORBD_LAB_OSD_PID");
  if (osd.empty()) return;
  Admin admin;
  admin.create("hung");
  Agent agent;
  auto image = agent.open("hung");
  REQUIRE(image);
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  const auto bytes = pattern(4096, 3);
  Wait wait;
  stop(std::stoi(osd));
  const auto start = std::chrono::steady_clock::now();
  (*image)->write(wait, 0, bytes);
  const auto seen = agent.run((*image)->ownership(agent.in(300ms)));
  const auto closed = agent.run((*image)->close(agent.in(300ms)));
  const auto missing = agent.run(agent.clusters->resolve(access(), {pool_name(), "", "hung"}, agent.in(300ms)));
  const double took = seconds_since(start);
  agent.run_for(2s);
  ::kill(std::stoi(osd), SIGCONT);
  CHECK(took < 2);
  for (const auto code : {seen ? errc::ok : seen.error().code, closed ? errc::ok : closed.error().code,
                          missing ? errc::ok : missing.error().code})
    CHECK(code == errc::timed_out);
  CHECK(wait.get() == 0);
  CHECK(agent.run((*image)->close(agent.in(60s))));
  CHECK(admin.read("hung", 0, 4096) == bytes);
  CHECK(agent.run(agent.clusters->shutdown(agent.in(20s))));
  CHECK(agent.incarnation_files() == 0);
}

TEST_CASE("an open whose caller has left closes what it opened", "[rule:18]") {
  Admin admin;
  admin.create("left");
  Agent agent;
  const auto key = resolve_all(agent, {"left"}).front();
  const auto opened = agent.run(agent.clusters->open(access(), key, {}, agent.in(1ms)));
  CHECK_FALSE(opened);
  for (int i = 0; i < 50; ++i) {
    agent.run_for(100ms);
    if (agent.run(agent.clusters->shutdown(agent.in(5s)))) break;
  }
  CHECK(agent.incarnation_files() == 0);
}

TEST_CASE("a client that is stopped for longer than its watches last still has its lock, and knows it", "[.][slow]") {
  Admin admin;
  admin.create("stopped");
  Agent agent;
  std::string lost;
  image::OpenOptions options;
  options.on_lost = [&](const std::string& why) { lost = why; };
  auto image = agent.open("stopped", options);
  REQUIRE(image);
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  REQUIRE(write(**image, 0, pattern(4096, 1)) == 0);
  const std::string self = std::to_string(::getpid());
  REQUIRE(std::system(("(sleep 100; kill -CONT " + self + ") & kill -STOP " + self).c_str()) == 0);
  agent.run_for(12s);
  INFO(lost);
  CHECK(lost.empty());
  CHECK(write(**image, 0, pattern(4096, 2)) == 0);
  agent.close(**image);
}

TEST_CASE("an image of another cluster is refused, not taken for one that is gone") {
  Admin admin;
  admin.create("elsewhere");
  Agent agent;
  auto key = resolve_all(agent, {"elsewhere"}).front();
  REQUIRE(agent.run(agent.clusters->fence_dead(access(), agent.in(20s))));
  key.fsid = "another";
  key.image_id = "not-there";
  const auto header = agent.run(agent.clusters->header(access(), key, agent.in(20s)));
  REQUIRE_FALSE(header);
  CHECK(header.error().code == errc::failed_precondition);
  const auto opened = agent.run(agent.clusters->open(access(), key, {}, agent.in(20s)));
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == errc::failed_precondition);
}
