// A planned restart with many volumes on a real cluster, without a kernel. Both agents' control planes, their
// conversation, the links and librbd are real. Threads play the kernel: each writes through the socket that it has.
#include "../../src/agent/takeover.hpp"
#include "corbd/core/process.hpp"
#include "kernel_ends.hpp"

using namespace corbd;
using namespace corbd::lab;

namespace {

constexpr int kVolumes = 100, kWriters = 16;
const handover::Side kSide{"lab", 1, "1:1"};

std::string id_of(int number) { return "next-" + std::to_string(number); }

}  // namespace

namespace {

void reload_predecessor_clients(Agent& next) {
  const auto look = [](Agent& of) -> task<bool> {
    const auto known = co_await of.clusters->reload_predecessor_clients(false);
    co_return known.has_value();
  };
  if (!next.run(look(next))) throw std::runtime_error("the incarnations cannot be read");
}

/// A provisioner: its call waits as long as the lock's owner does not answer.
struct Tool {
  Tool(std::string of, std::function<int(rbd_image_t)> job)
      : image(std::move(of)), work(std::move(job)), thread([this] { run(); }) {}
  ~Tool() { thread.join(); }
  void run() {
    Admin other;
    rbd_image_t opened = other.open(image);
    answer = work(opened);
    Admin::check(rbd_close(opened));
  }
  const std::string image;
  const std::function<int(rbd_image_t)> work;
  std::atomic<int> answer{1};  ///< 1: none yet
  std::thread thread;
};

/// Whether the next agent got the locks. A client that waits for one tries to take it every five seconds, and may find
/// it free while the next agent has broken it and not taken it yet. Then nothing proves the image ours, and nobody may
/// have been cut off either.
bool next_agent_takes_locks_before_tools(Admin& admin, const std::string& names) {
  const std::string first = names + "passing", second = names + "passing-too";
  const std::vector all{first, second, names + "staying"};
  for (const auto& name : all) admin.create(name);
  const test::Folder folder;
  Agent before(folder.path());
  std::vector<std::unique_ptr<image::Image>> images;
  for (const auto& name : all) {
    auto opened = before.open(name);
    REQUIRE(opened);
    REQUIRE(before.run((*opened)->acquire_lock(before.in(20s))));
    images.push_back(std::move(*opened));
  }
  const std::string client = images[0]->client();
  REQUIRE(images[2]->client() == client);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(before.run(images[i]->keep_lock(before.in(20s))));
    before.close(*images[i]);
  }
  const auto is_cut_off = [&](Agent& by) {
    const auto fenced = by.run(by.clusters->blocklist(access(), by.in(20s)));
    REQUIRE(fenced);
    return fenced->find(client) != nullptr;
  };
  Tool snapshots(first, [](rbd_image_t on) { return rbd_snap_create(on, "within"); });
  Tool resizes(second, [](rbd_image_t on) { return rbd_resize(on, 96 << 20); });
  before.run_for(3s);
  CHECK(snapshots.answer == 1);
  CHECK(resizes.answer == 1);
  CHECK_FALSE(is_cut_off(before));
  CHECK(write(*images[2], 0, pattern(4096, 1)) == 0);

  Agent next(folder.path(), 32, true);
  reload_predecessor_clients(next);
  std::vector<std::unique_ptr<image::Image>> taken;
  for (const auto& name : {first, second}) {
    auto opened = next.open(name);
    REQUIRE(opened);
    const auto seen = next.ownership(**opened);
    REQUIRE(seen);
    CHECK(seen->lock == image::Ownership::Lock::our_dead);
    CHECK(seen->owner == client);
    REQUIRE(next.run((*opened)->break_dead_lock(seen->owner, kBreakTime, next.in(20s))));
    const auto locked = next.run((*opened)->acquire_lock(next.in(20s)));
    if (!locked) {
      CHECK(locked.error().code == errc::unproven);
      CHECK_FALSE(is_cut_off(next));
      next.close(**opened);
      // The tools go on once nobody keeps a lock.
      before.close(*images[2]);
      images.clear();
      REQUIRE(before.run(before.clusters->shutdown(before.in(20s))));
      return false;
    }
    taken.push_back(std::move(*opened));
  }
  for (int i = 0; i < 2; ++i)
    before.run([](image::Image& of, Until until) -> task<bool> {
      co_await of.lock_taken_over(until);
      co_return true;
    }(*images[i], before.in(20s)));
  for (int i = 0; i < 600 && (snapshots.answer == 1 || resizes.answer == 1); ++i) {
    before.run_for(50ms);
    next.run_for(50ms);
  }
  CHECK(snapshots.answer == 0);
  CHECK(resizes.answer == 0);
  CHECK_FALSE(is_cut_off(next));
  CHECK(write(*images[2], 0, pattern(4096, 2)) == 0);
  CHECK(write(*taken[0], 0, pattern(4096, 3)) == 0);
  // The predecessor watches nothing more.
  Agent stranger;
  image::OpenOptions reads;
  reads.read_only = true;
  auto looked = stranger.open(first, reads);
  REQUIRE(looked);
  CHECK(stranger.ownership(**looked)->foreign_watchers == std::vector{taken[0]->client()});
  stranger.close(**looked);
  for (auto& image : taken) next.close(*image);
  rbd_image_t passing = admin.open(first);
  Admin::check(rbd_snap_remove(passing, "within"));
  Admin::check(rbd_close(passing));
  before.close(*images[2]);
  images.clear();
  REQUIRE(before.run(before.clusters->shutdown(before.in(20s))));
  return true;
}

}  // namespace

TEST_CASE("a snapshot and a resize by another client wait within a handover, and cut nobody off", "[failure:154]") {
  Admin admin;
  for (int tries = 0; tries < 2; ++tries)
    if (next_agent_takes_locks_before_tools(admin, std::to_string(tries) + "-")) return;
  FAIL("the tools took a lock twice before the next agent did");
}

TEST_CASE("a writer's mark stays during a handover, and only the next agent accepts it as proof") {
  Admin admin;
  constexpr std::uint64_t kLayering = 1;
  admin.create("marked", 64 << 20, kLayering);
  const test::Folder folder;
  Agent before(folder.path());
  auto image = before.open("marked");
  REQUIRE(image);
  REQUIRE(before.ownership(**image));
  REQUIRE(before.run((*image)->acquire_lock(before.in(20s))));
  const std::string client = (*image)->client();
  REQUIRE(before.run((*image)->keep_lock(before.in(20s))));
  before.close(**image);
  Agent stranger;
  image::OpenOptions reads;
  reads.read_only = true;
  auto looked = stranger.open("marked", reads);
  REQUIRE(looked);
  const auto foreign = stranger.ownership(**looked);
  REQUIRE(foreign);
  CHECK(foreign->writer == client);
  CHECK_FALSE(foreign->handed_over);
  stranger.close(**looked);
  Agent next(folder.path(), 32, true);
  reload_predecessor_clients(next);
  auto taken = next.open("marked");
  REQUIRE(taken);
  const auto seen = next.ownership(**taken);
  REQUIRE(seen);
  CHECK(seen->handed_over);
  CHECK(seen->writer.empty());
  REQUIRE(next.run((*taken)->acquire_lock(next.in(20s))));
  CHECK_FALSE(next.ownership(**taken)->handed_over);
  next.close(**taken);
}

namespace {

/// As agent::Runner does it. False: it may not serve.
task<bool> take_over(agent::Takeover& takeover, std::chrono::steady_clock::time_point& begun) {
  auto life = lifecycle::start_of({.handover = true});
  life = lifecycle::next(life, lifecycle::Begun{}).state;
  life = lifecycle::next(life, lifecycle::LinksGone{}).state;
  for (lifecycle::Event event = lifecycle::Done{};;) {
    auto [after, action] = lifecycle::next(life, event);
    if (after.owns_state && !life.owns_state) begun = std::chrono::steady_clock::now();
    life = after;
    const auto* takes = std::get_if<lifecycle::TakingOverAction>(&action);
    if (takes == nullptr) co_return is(action, lifecycle::Serving::serve);
    const auto ended = co_await takeover.carry_out(*takes);
    event = ended ? *ended : lifecycle::Done{ended.error().code};
  }
}

}  // namespace

TEST_CASE("a handover of 100 volumes under writers loses no write", "[.][many]") {
  Admin admin;
  for (int number = 0; number < kVolumes; ++number) admin.create(id_of(number), 16 << 20);
  const test::Folder folder;
  KernelEnds kernel;
  Node before(folder.path(), kernel, false);
  auto& serving = before.plane;
  REQUIRE(serving.run(serving.shell.start()));
  std::vector<plan::Staged> wishes;
  for (int number = 0; number < kVolumes; ++number) wishes.push_back(staged(id_of(number)));
  serving.stage(wishes);
  auto lock = lock_folder(folder.path());
  REQUIRE(lock);

  // Each agent has a control thread. The one that serves runs on its own from here on.
  Gate gate(serving.io.get_executor(), *serving.clock);
  handover::Giver giver(serving.io.get_executor(), *serving.clock, folder.path() + "/runtime", kSide);
  std::optional<result<std::size_t>> given;
  const auto give = [&]() -> task<> { given = co_await hand_over(serving, giver, *lock); };
  REQUIRE(giver.start([&] { gate.spawn(give()); }));
  gate.spawn(giver.run());
  std::thread serves([&] { serving.run_until([&] { return given.has_value(); }); });

  std::vector<std::unique_ptr<Writer>> writers;
  for (int number = 0; number < kWriters; ++number)
    writers.push_back(std::make_unique<Writer>(kernel.at(id_of(number * kVolumes / kWriters)).get()));
  std::this_thread::sleep_for(1s);
  std::chrono::microseconds usual{0};
  for (const auto& writer : writers) usual = std::max(usual, writer->longest());

  Node after(folder.path(), kernel, true);
  auto& next = after.plane;
  next.devices->seen = serving.devices->seen;
  auto asked = handover::ask(folder.path() + "/runtime", kSide);
  REQUIRE(asked);
  REQUIRE(*asked);
  device::Served devices(*next.devices);
  agent::Takeover takeover(next.io.get_executor(), *next.clock, std::move(*asked),
                           {.files = next.pool,
                            .state_dir = folder.path(),
                            .shell = next.shell,
                            .devices = devices,
                            .clusters = *next.clusters});
  std::chrono::steady_clock::time_point begun;
  const bool served = next.run(take_over(takeover, begun));
  REQUIRE(served);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  serves.join();
  giver.leave();
  serving.run_until([&] { return giver.quiet() && gate.count() == 0; });
  REQUIRE(*given);
  CHECK(**given == kVolumes);
  for (const auto& status : next.shell.status()) CHECK_FALSE(status.unserved);

  std::thread serves_on([&next] { next.io.run(); });
  std::this_thread::sleep_for(500ms);
  std::chrono::microseconds longest{0};
  std::uint64_t writes = 0;
  int lost = 0;
  for (const auto& writer : writers) {
    lost += writer->stop();
    CHECK_FALSE(writer->failed());
    longest = std::max(longest, writer->longest());
    writes += writer->writes();
  }
  next.io.stop();
  serves_on.join();
  next.io.restart();
  // The locks go too, so that the next run may remove the images at once.
  for (const auto& wish : wishes)
    CHECK(next.run(next.shell.want(wish.source.image, plan::Wish(plan::Unstaged{wish.path}), {})));
  CHECK(next.run(next.clusters->shutdown({next.clock->now() + 10s})));
  CHECK(lost == 0);
  std::printf(
      "handover of %d volumes, %d with a writer: longest stall %.3f s (longest write in the second before: %.3f s), "
      "all "
      "given in %.2f s, %llu writes, %d lost\n",
      kVolumes, kWriters, static_cast<double>(longest.count()) / 1e6, static_cast<double>(usual.count()) / 1e6,
      took.count(), static_cast<unsigned long long>(writes), lost);
}

TEST_CASE("an agent that takes an image back leaves no watch that only its kept lock had", "[failure:154]") {
  Admin admin;
  for (const char* name : {"taken-back", "stays"}) admin.create(name);
  const test::Folder folder;
  Agent agent(folder.path());
  const auto stays = agent.open("stays");
  REQUIRE(stays);
  auto image = agent.open("taken-back");
  REQUIRE(image);
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  REQUIRE(agent.run((*image)->keep_lock(agent.in(20s))));
  agent.close(**image);
  {
    // The next agent ends after it has broken the lock.
    Agent next(folder.path(), 32, true);
    reload_predecessor_clients(next);
    auto opened = next.open("taken-back");
    REQUIRE(opened);
    const auto seen = next.ownership(**opened);
    REQUIRE(seen);
    REQUIRE(next.run((*opened)->break_dead_lock(seen->owner, kBreakTime, next.in(20s))));
    next.close(**opened);
  }
  image = agent.open("taken-back");
  REQUIRE(image);
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  agent.run_for(2s);
  rbd_image_t looks = nullptr;
  Admin::check(rbd_open_read_only(admin.io, "taken-back", &looks, nullptr));
  rbd_image_watcher_t watchers[8];
  std::size_t count = 8;
  Admin::check(rbd_watchers_list(looks, watchers, &count));
  CHECK(count == 1);
  rbd_watchers_list_cleanup(watchers, count);
  Admin::check(rbd_close(looks));
  agent.close(**image);
  agent.close(**stays);
}
