// Who waits for whom among clusters, and what happens to whom a cut-off client is told. The clients are librados's own,
// connected to nothing.
#include "connections.hpp"

#include <boost/asio/detached.hpp>
#include <filesystem>

#include "connecting.hpp"
#include "corbd/core/file.hpp"
#include "open_image.hpp"

using namespace corbd;
using rbd::Connections;
using test::access;
using test::eventually;
using test::Started;
using namespace std::chrono_literals;
using Scene = test::Connecting;

TEST_CASE("silent clusters hold up neither another cluster nor the agent's files", "[rule:24]") {
  Scene scene;
  std::vector<std::unique_ptr<Started<result<rbd::Lease>>>> hanging;
  for (const char* cluster : {"hangs-1", "hangs-2"})
    for (const char* user : {"a", "b", "c"})
      hanging.push_back(scene.lease(access(cluster, user), {scene.loop.clock.now() + 10s}));
  CHECK(scene.lease(access("answers"))->get());
  const auto file = [] { return result<int>(7); };
  CHECK(Started<result<int>>(scene.loop.io, scene.files.run(file, {}, "a file")).get().value() == 7);
  scene.loop.clock.advance(11s);
  for (auto& one : hanging) CHECK(one->get().error().code == errc::unavailable);
}

TEST_CASE("calls on images that hang keep no other cluster's images waiting, whichever kind they are") {
  Scene scene;
  rbd::ClusterThreads hangs(scene.loop.control(), scene.loop.clock, "hangs"),
      answers(scene.loop.control(), scene.loop.clock, "answers");
  Gate gate(scene.loop.control(), scene.loop.clock);
  const auto stuck = [ended = scene.ended] {
    ended.wait();
    return result<int>(1);
  };
  std::vector<std::unique_ptr<Started<result<int>>>> calls;
  for (rbd::BlockingCalls* share : {&hangs.cluster, &hangs.names, &hangs.images, &hangs.looks})
    for (int i = 0; i < 20; ++i)
      calls.push_back(std::make_unique<Started<result<int>>>(
          scene.loop.io, share->call(gate, stuck, {scene.loop.clock.now() + 1min}, "asking")));
  for (rbd::BlockingCalls* share : {&answers.cluster, &answers.names, &answers.images, &answers.looks})
    CHECK(Started<result<int>>(scene.loop.io, share->call(
                                                  gate, [] { return result<int>(2); }, {}, "asking"))
              .get()
              .value() == 2);
  scene.loop.clock.advance(61s);
  for (auto& call : calls) CHECK(call->get().error().code == errc::timed_out);
  CHECK_THAT(calls.back()->get().error().text, ContainsSubstring("threads for looks at images of cluster hangs"));
  scene.end.set_value();
  scene.end = {};
  CHECK(eventually(scene.loop.io, [&] { return gate.count() == 0; }));
}

TEST_CASE("a call that must not be abandoned times out while it waits for a thread, not once it has one") {
  Scene scene;
  rbd::ClusterThreads threads(scene.loop.control(), scene.loop.clock, "hangs");
  Gate gate(scene.loop.control(), scene.loop.clock);
  const auto stuck = [ended = scene.ended] {
    ended.wait();
    return result<int>(1);
  };
  Started<result<int>> first(scene.loop.io, threads.looks.call_to_end(gate, stuck, "asking"));
  Started<result<int>> second(scene.loop.io, threads.looks.call_to_end(gate, stuck, "asking"));
  Started<result<int>> third(scene.loop.io, threads.looks.call_to_end(gate, stuck, "asking"));
  scene.loop.clock.advance(2min);
  CHECK(third.get().error().code == errc::timed_out);
  CHECK_FALSE(first.done());
  scene.end.set_value();
  scene.end = {};
  CHECK(first.get().value() == 1);
  CHECK(second.get().value() == 1);
}

TEST_CASE("an image that hangs and is asked again and again takes one thread of its cluster") {
  Scene scene;
  rbd::ClusterThreads threads(scene.loop.control(), scene.loop.clock, "a");
  Gate gate(scene.loop.control(), scene.loop.clock);
  Slots one(scene.loop.control(), scene.loop.clock, "the call under way on image one", 1),
      other(scene.loop.control(), scene.loop.clock, "other", 1);
  std::atomic<int> begun = 0;
  const auto stuck = [&begun, ended = scene.ended] {
    ++begun;
    ended.wait();
    return result<int>(1);
  };
  for (std::size_t i = 0; i < 2 * rbd::ClusterThreads::kImages; ++i) {
    Started<result<int>> call(scene.loop.io,
                              threads.images.call(gate, stuck, {scene.loop.clock.now() + 1min}, "asking", &one));
    // The first has the thread before its time is up.
    REQUIRE(eventually([&] { return begun == 1; }));
    scene.loop.clock.advance(61s);
    CHECK_FALSE(call.get());
  }
  CHECK(begun == 1);
  CHECK(Started<result<int>>(scene.loop.io, threads.images.call(
                                                gate, [] { return result<int>(2); }, {}, "asking", &other))
            .get()
            .value() == 2);
  scene.end.set_value();
  scene.end = {};
  CHECK(eventually(scene.loop.io, [&] { return gate.count() == 0; }));
}

TEST_CASE("a callback about a lost client may lease other connections at once") {
  Scene scene;
  std::vector<std::shared_ptr<rbd::OpenImage>> images;
  int told = 0;
  for (const char* user : {"a", "b", "c"}) {
    auto lease = scene.lease(access("lab", user));
    REQUIRE(lease->get());
    image::OpenOptions options;
    options.read_only = true;
    options.on_lost = [&](const std::string&) {
      ++told;
      for (int i = 0; i < 20; ++i)
        asio::co_spawn(scene.loop.io,
                       scene.connections->lease(access("lab", "new-" + std::to_string(told * 100 + i)),
                                                Connections::Need::any, {}),
                       asio::detached);
      // It may close its neighbours, too.
      for (auto& neighbour : images) neighbour->handle().connection.images.erase(neighbour.get());
    };
    auto& image = images.emplace_back(std::make_shared<rbd::OpenImage>(
        *scene.connections, std::move(*lease->get()), image::Key{"fsid", 1, "", user, 0}, std::move(options)));
    image->handle().connection.images.insert(image.get());
  }
  for (auto& image : images) image->handle().connection.blocklisted = true;
  images.front()->handle().connection.on_blocklisted();
  CHECK(eventually(scene.loop.io, [&] { return told > 0 && scene.dialled >= 23; }));
  for (auto& image : images) image->handle().connection.images.clear();
  images.clear();
}

TEST_CASE("a connection stays while a wrong key for the same user is tried") {
  Scene scene;
  {
    auto good = scene.lease(access("lab"));
    REQUIRE(good->get());
  }
  CHECK(scene.lease(access("lab", "node", "wrong"))->get().error().code == errc::unauthenticated);
  CHECK(scene.lease(access("lab"))->get());
  CHECK(scene.dialled == 1);
}

// field report 14
TEST_CASE("whoever asks after a client was denied a right gets a new client, and the old one ends with its last user",
          "[failure:222]") {
  Scene scene;
  auto user = scene.lease(access("lab"));
  REQUIRE(user->get());
  const auto denied = user->get()->connection();
  scene.connections->retire_denied(denied);
  {
    auto next = scene.lease(access("lab"));
    REQUIRE(next->get());
    CHECK(next->get()->connection() != denied);
  }
  CHECK(denied->cluster != nullptr);
  user.reset();
  CHECK(eventually(scene.loop.io, [&] { return denied->cluster == nullptr; }));
  CHECK(scene.dialled == 2);
}

TEST_CASE("of a user that a volume has no more, the clients that nobody uses end, and the others take new images") {
  Scene scene;
  auto user = scene.lease(access("lab"));
  REQUIRE(user->get());
  const auto used = user->get()->connection();
  scene.connections->retire(access("lab"));
  CHECK(scene.lease(access("lab"))->get()->connection() == used);
  user.reset();
  scene.connections->retire(access("lab"));
  CHECK(eventually(scene.loop.io, [&] { return used->cluster == nullptr; }));
  CHECK(scene.dialled == 1);
}

TEST_CASE("a right that stays missing makes no more clients than a user may have beside those in use") {
  Scene scene;
  std::vector<std::unique_ptr<Started<result<rbd::Lease>>>> users;
  for (int i = 0; i < 100; ++i) {
    users.push_back(scene.lease(access("lab")));
    REQUIRE(users.back()->get());
    const auto connection = users.back()->get()->connection();
    connection->images.insert(nullptr);  // one that is open; nobody asks it anything
    scene.connections->retire_denied(connection);
  }
  CHECK(static_cast<std::size_t>(scene.dialled) <= rbd::Config{}.max_connections + 1);
}

TEST_CASE("a fenced node learns of its fence with one new client, and leaves no dead one") {
  Scene scene;
  scene.node_fenced = true;
  std::vector<std::unique_ptr<Started<result<rbd::Lease>>>> all;
  for (int i = 0; i < 16; ++i) all.push_back(scene.lease(access("lab")));
  for (auto& one : all) CHECK(one->get().error().code == errc::node_fenced);
  CHECK(scene.lease(access("lab"))->get().error().code == errc::node_fenced);
  CHECK(scene.dialled == 1);
  CHECK(scene.connections->incarnations().unfenced("fsid of lab").empty());
  scene.node_fenced = false;
  scene.loop.clock.advance(5s);
  CHECK(scene.lease(access("lab"))->get());
  CHECK(scene.dialled == 2);
}

TEST_CASE("the monitors are still asked after their cluster has fenced this node") {
  Scene scene;
  scene.node_fenced = true;
  CHECK(scene.lease(access("lab"), {}, Connections::Need::monitors)->get());
  CHECK(scene.lease(access("lab"))->get().error().code == errc::node_fenced);
}

namespace {
void records_prepared(Scene& scene) {
  Started<bool>(scene.loop.io,
                [](Connections& of) -> task<bool> {
                  co_await of.record_prepared({});
                  co_return true;
                }(*scene.connections))
      .get();
}
}  // namespace

TEST_CASE(
    "a next agent makes connections for its predecessor's images early, writes their files only with the lock, and "
    "keeps them until the predecessor has ended",
    "[failure:231]") {
  Scene scene;
  scene.begin_anew({.incarnations_dir = scene.folder.path(),
                    .images_per_connection = 4,
                    .max_connections = 3,
                    .predecessor_running = true});
  REQUIRE(Started<result<>>(scene.loop.io, scene.connections->prepare(access("lab"), 9, {})).get());
  CHECK(scene.dialled == 3);
  {
    std::vector<std::unique_ptr<Started<result<rbd::Lease>>>> images;
    for (int i = 0; i < 9; ++i) {
      images.push_back(scene.lease(access("lab"), {}, Connections::Need::room_for_image));
      REQUIRE(images.back()->get());
    }
    CHECK(scene.dialled == 3);
  }
  const auto files = [&] { return rbd::load_incarnations(scene.folder.path(), 0, "")->all.size(); };
  CHECK(files() == 0);
  records_prepared(scene);
  CHECK(files() == 3);
  REQUIRE(scene.reload_predecessor_clients(true));
  CHECK(eventually(scene.loop.io, [&] { return files() == 1; }));
}

TEST_CASE("of the clients of users that have no volume any more, one stays for the cluster after ten minutes",
          "[failure:236]") {
  Scene scene;
  const auto clients = [&] { return scene.connections->incarnations().all().size(); };
  for (int user = 0; user < 20; ++user) {
    const auto lease = scene.lease(access("lab", std::to_string(user)));
    REQUIRE(lease->get());
    REQUIRE(Started<result<>>(scene.loop.io, scene.connections->record(*lease->get(), {})).get());
  }
  const auto used = scene.lease(access("lab", "used"));
  REQUIRE(used->get());
  scene.loop.clock.advance(9min);
  CHECK(scene.lease(access("lab", "3"))->get());
  CHECK(clients() == 21);
  for (int minutes = 0; minutes < 12; ++minutes) scene.loop.clock.advance(1min);
  CHECK(eventually(scene.loop.io, [&] { return clients() == 2; }));
  CHECK(rbd::load_incarnations(scene.folder.path(), 0, "")->all.size() == 1);
  const int dialled = scene.dialled;
  CHECK(scene.lease(access("lab", "3"))->get());
  CHECK(scene.lease(access("lab", "used"))->get());
  CHECK(scene.dialled == dialled);
  CHECK(scene.lease(access("lab", "4"))->get());
  CHECK(scene.dialled == dialled + 1);
}

TEST_CASE("the process ends before the blocklist entry of a client that was cut off and never ends", "[failure:270]") {
  Scene scene;
  int ended = 0;
  scene.begin_anew({.incarnations_dir = scene.folder.path(), .end_process = [&] { ++ended; }});
  auto lease = scene.lease(access("lab"));
  REQUIRE(lease->get());
  REQUIRE(Started<result<>>(scene.loop.io, scene.connections->record(*lease->get(), {})).get());
  static_cast<void>((*lease->get())->observe_result(-ESHUTDOWN));
  REQUIRE(eventually(scene.loop.io, [&] { return (*lease->get())->dropped; }));
  const bool in_use = GENERATE(true, false);
  CAPTURE(in_use);
  if (!in_use) lease.reset();
  if (!in_use) REQUIRE(eventually(scene.loop.io, [&] { return scene.connections->quiet(); }));
  scene.loop.clock.advance(6 * 24h);
  CHECK(ended == 0);
  scene.loop.clock.advance(24h);
  if (in_use) CHECK(eventually(scene.loop.io, [&] { return ended == 1; }));
  scene.loop.io.poll();
  CHECK(ended == (in_use ? 1 : 0));
}

TEST_CASE("after a user was refused, no new image is opened on a client of it, also on one that serves images") {
  Scene scene;
  const auto used = scene.lease(access("lab"), {}, Connections::Need::room_for_image);
  REQUIRE(used->get());
  scene.connections->retire(access("lab"));
  REQUIRE(scene.lease(access("lab"), {}, Connections::Need::room_for_image)->get());
  CHECK(scene.dialled == 1);
  scene.connections->retire_all(access("lab"));
  REQUIRE(scene.lease(access("lab"), {}, Connections::Need::room_for_image)->get());
  CHECK(scene.dialled == 2);
}

TEST_CASE("when all connections are full, an image goes to the one with the fewest images") {
  Scene scene;
  scene.begin_anew({.incarnations_dir = scene.folder.path(), .images_per_connection = 2, .max_connections = 2});
  std::vector<std::unique_ptr<Started<result<rbd::Lease>>>> images;
  for (int i = 0; i < 9; ++i) {
    images.push_back(scene.lease(access("lab"), {}, Connections::Need::room_for_image));
    REQUIRE(images.back()->get());
  }
  CHECK(scene.dialled == 2);
  CHECK((*images.front()->get())->users == 5);
  CHECK((*images.back()->get())->users == 5);
  CHECK((*images[7]->get())->users == 4);
}

namespace {
std::size_t files_of(const Scene& scene) { return rbd::load_incarnations(scene.folder.path(), 0, "")->all.size(); }
}  // namespace

TEST_CASE("a client has a file from before it opens an image for writing, and none as long as it only reads",
          "[failure:163][rule:I5]") {
  Scene scene;
  const auto lease = scene.lease(access("lab"), {}, Connections::Need::room_for_image);
  REQUIRE(lease->get());
  CHECK(files_of(scene) == 0);
  std::vector<std::unique_ptr<Started<result<>>>> images;
  for (int i = 0; i < 8; ++i)
    images.push_back(std::make_unique<Started<result<>>>(scene.loop.io, scene.connections->record(*lease->get(), {})));
  for (auto& image : images) CHECK(image->get());
  CHECK(files_of(scene) == 1);
}

TEST_CASE("a client that the cluster cut off is fenced for longer only if it may have written", "[failure:163]") {
  Scene scene;
  for (const bool writes : {false, true}) {
    const auto lease = scene.lease(access("lab"));
    REQUIRE(lease->get());
    if (writes) REQUIRE(Started<result<>>(scene.loop.io, scene.connections->record(*lease->get(), {})).get());
    static_cast<void>((*lease->get())->observe_result(-ESHUTDOWN));
    CHECK(eventually(scene.loop.io, [&] { return (*lease->get())->dropped; }));
    CHECK(scene.connections->incarnations().unfenced("fsid of lab").size() == (writes ? 1 : 0));
  }
}

TEST_CASE("a client that ended well and left its locks needs no entry in the blocklist, for this agent and the next") {
  Scene scene;
  auto lease = scene.lease(access("lab"));
  REQUIRE(lease->get());
  REQUIRE(Started<result<>>(scene.loop.io, scene.connections->record(*lease->get(), {})).get());
  const auto connection = lease->get()->connection();
  connection->keeps_locks = true;
  scene.connections->retire_denied(connection);
  lease.reset();
  const auto has_ended = [](const std::vector<rbd::Incarnation>& all) {
    return all.size() == 1 && all[0].state == rbd::Incarnation::State::fenced && all[0].ended;
  };
  CHECK(eventually(scene.loop.io, [&] { return has_ended(scene.connections->incarnations().all()); }));
  CHECK(has_ended(rbd::load_incarnations(scene.folder.path(), 0, "")->all));
}

TEST_CASE("a client may read but not write images while its file cannot be written") {
  Scene scene;
  std::filesystem::remove_all(scene.folder.path());
  const auto lease = scene.lease(access("lab"));
  REQUIRE(lease->get());
  CHECK(Started<result<>>(scene.loop.io, scene.connections->record(*lease->get(), {})).get().error().code ==
        errc::state_write);
  std::filesystem::create_directory(scene.folder.path());
  CHECK(Started<result<>>(scene.loop.io, scene.connections->record(*lease->get(), {})).get());
}

TEST_CASE(
    "beside a client whose call had no answer the next caller gets another one, and the first again if that one "
    "hears nothing either",
    "[failure:270]") {
  Scene scene;
  const auto address = [&] {
    const auto lease = scene.lease(access("lab"));
    REQUIRE(lease->get());
    return (*lease->get())->addresses.front();
  };
  std::vector<std::unique_ptr<rbd::UnderWay>> calls;
  const auto unanswered = [&](const std::string& which) {
    for (const auto& one : scene.connections->of_cluster("fsid of lab")) {
      if (one->addresses.front() != which) continue;
      calls.push_back(std::make_unique<rbd::UnderWay>(*one));
      scene.connections->note_answer(*one, false);
    }
  };
  const auto held = scene.lease(access("lab"));
  REQUIRE(held->get());
  const auto first = address();
  unanswered(first);
  const auto second = address();
  CHECK(second != first);
  CHECK(address() == second);
  SECTION("which is used again once it answers") {
    scene.connections->note_answer(*held->get()->connection(), true);
    unanswered(second);
    CHECK(address() == first);
  }
  SECTION("and a further one a minute later, up to a limit") {
    unanswered(second);
    CHECK((address() == first || address() == second));
    std::set<std::string> all;
    for (int minute = 0; minute < 10; ++minute) {
      scene.loop.clock.advance(61s);
      all.insert(address());
      for (const auto& one : all) unanswered(one);
    }
    CHECK(scene.connections->of_cluster("fsid of lab").size() <= 4);
  }
}

TEST_CASE("a client whose call waited for a thread in vain is used on", "[failure:270]") {
  Scene scene;
  const auto first = scene.lease(access("lab"));
  REQUIRE(first->get());
  scene.connections->note_answer(*first->get()->connection(), false);
  const auto second = scene.lease(access("lab"));
  REQUIRE(second->get());
  CHECK(second->get()->connection() == first->get()->connection());
}

TEST_CASE("a full client is used on while another one has no answers, and no further client is made") {
  Scene scene;
  std::vector<std::unique_ptr<Started<result<rbd::Lease>>>> held;
  const auto for_image = [&] { return scene.lease(access("lab"), {}, Connections::Need::room_for_image); };
  for (int i = 0; i < 33; ++i) {
    held.push_back(for_image());
    REQUIRE(held.back()->get());
  }
  const auto clients = [&] { return scene.connections->of_cluster("fsid of lab").size(); };
  REQUIRE(clients() == 2);
  const auto last = held.back()->get()->connection();
  const rbd::UnderWay call(*last);
  scene.connections->note_answer(*last, false);
  for (int i = 0; i < 5; ++i) {
    held.push_back(for_image());
    REQUIRE(held.back()->get());
    CHECK(held.back()->get()->connection() != last);
    scene.loop.clock.advance(61s);
  }
  CHECK(clients() == 2);
}

TEST_CASE("calls of a client that hears nothing keep no thread from its successor", "[failure:270]") {
  Scene scene;
  Gate gate(scene.loop.control(), scene.loop.clock);
  const auto stuck = [ended = scene.ended] {
    ended.wait();
    return result<int>(1);
  };
  auto first = scene.lease(access("lab"));
  REQUIRE(first->get());
  std::vector<std::unique_ptr<Started<result<int>>>> calls;
  for (std::size_t i = 0; i < rbd::ClusterThreads::kNames; ++i)
    calls.push_back(std::make_unique<Started<result<int>>>(
        scene.loop.io, (*first->get())->threads->names.call(gate, stuck, {}, "asking")));
  REQUIRE(eventually(scene.loop.io, [&] { return gate.count() == rbd::ClusterThreads::kNames; }));
  const rbd::UnderWay one_of_them(*first->get()->connection());
  SECTION("that a caller left without an answer") {
    scene.connections->note_answer(*first->get()->connection(), false);
  }
  SECTION("while a new client gets answers") { scene.connections->leave_deaf(first->get()->connection()); }
  const auto second = scene.lease(access("lab"));
  REQUIRE(second->get());
  CHECK(Started<result<int>>(scene.loop.io, (*second->get())
                                                ->threads->names.call(
                                                    gate, [] { return result<int>(2); }, {}, "asking"))
            .get()
            .value() == 2);
  scene.end.set_value();
  scene.end = {};
  CHECK(eventually(scene.loop.io, [&] { return gate.count() == 0; }));
}

TEST_CASE("a client that only tries whether an image could be served anew gives up on a silent OSD, and others do not",
          "[failure:267]") {
  Scene scene;
  REQUIRE(scene.lease(access("lab"))->get());
  CHECK(scene.osds_within.load() == 0s);
  const auto tried = Started<result<>>(scene.loop.io, scene.connections->may_serve_anew(
                                                          access("lab"), {"another", 1, "", "id", 0}, true))
                         .get();
  CHECK(scene.osds_within.load() > 0s);
  // And whatever another cluster says of the image is no word of its own.
  CHECK(tried.error().code == errc::failed_precondition);
}

TEST_CASE("of the clients that only try whether an image could be served anew, a cluster gets one at a time",
          "[failure:267]") {
  Scene scene;
  std::vector<std::unique_ptr<Started<result<>>>> trials;
  for (int i = 0; i < 3; ++i)
    trials.push_back(std::make_unique<Started<result<>>>(
        scene.loop.io, scene.connections->may_serve_anew(access("hangs"), {"fsid", 1, "", "id", 0}, true)));
  scene.loop.clock.advance(61s);
  CHECK_FALSE(trials[1]->get());
  CHECK_FALSE(trials[2]->get());
  CHECK_FALSE(trials[0]->done());
}

TEST_CASE("a setting that a pool gets and loses is found at its open images, of which Ceph tells nobody",
          "[failure:232]") {
  Scene scene;
  auto lease = scene.lease(access("lab"));
  REQUIRE(lease->get());
  std::atomic<bool> pool_has_cache = false;
  auto look = [&](const rbd::ImageHandle&, rbd::Purpose, bool) -> result<rbd::Details> {
    rbd::Details seen;
    seen.refused = pool_has_cache ? "rbd_cache=true" : "";
    return seen;
  };
  image::OpenOptions options;
  options.read_only = GENERATE(false, true);
  const auto image = std::make_shared<rbd::OpenImage>(*scene.connections, std::move(*lease->get()),
                                                      image::Key{"fsid", 1, "", "id", 0}, std::move(options), look);
  image->keep_looking();
  for (const bool has_cache : {true, false, true}) {
    pool_has_cache = has_cache;
    scene.loop.clock.advance(5min);
    CHECK(eventually(scene.loop.io, [&] { return image->refused_again().empty() != has_cache; }));
  }
  CHECK(eventually(scene.loop.io, [&] { return image.use_count() == 1; }));
}

TEST_CASE("an image tells for how long a look or a call has waited for the cluster, also after the caller has left",
          "[failure:270]") {
  Scene scene;
  auto lease = scene.lease(access("lab"));
  REQUIRE(lease->get());
  std::atomic<bool> begun = false;
  auto look = [&begun, ended = scene.ended](const rbd::ImageHandle&, rbd::Purpose, bool) -> result<rbd::Details> {
    begun = true;
    ended.wait();
    return rbd::Details();
  };
  image::OpenOptions options;
  options.read_only = true;
  const auto image = std::make_shared<rbd::OpenImage>(*scene.connections, std::move(*lease->get()),
                                                      image::Key{"fsid", 1, "", "id", 0}, std::move(options), look);
  CHECK(image->unanswered() == duration::zero());
  std::unique_ptr<Started<result<int>>> call;
  if (GENERATE(false, true)) {
    image->keep_looking();
    scene.loop.clock.advance(5min);
  } else {
    auto job = [&begun, ended = scene.ended](const rbd::ImageHandle&) {
      begun = true;
      ended.wait();
      return result<int>(1);
    };
    call = std::make_unique<Started<result<int>>>(
        scene.loop.io, image->call(std::move(job), {scene.loop.clock.now() + 1min}, "asking"));
  }
  REQUIRE(eventually(scene.loop.io, [&] { return begun.load(); }));
  CHECK(image->unanswered() == duration::zero());
  scene.loop.clock.advance(61s);
  if (call) CHECK_FALSE(call->get());
  CHECK(image->unanswered() >= 61s);
  scene.end.set_value();
  scene.end = {};
  auto next = [](const rbd::ImageHandle&) { return result<int>(2); };
  CHECK(Started<result<int>>(scene.loop.io, image->call(std::move(next), {}, "asking")).get().value() == 2);
  // The first one has another thread, whose end may come later.
  CHECK(eventually(scene.loop.io, [&] { return image->unanswered() == duration::zero(); }));
  CHECK(eventually(scene.loop.io, [&] { return image.use_count() == 1; }));
}
