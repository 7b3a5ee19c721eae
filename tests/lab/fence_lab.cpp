// Tests the blocklist of a real cluster: what the monitors take, what they list, and whom they let.
#include <cstdio>
#include <iostream>

#include "corbd/fence/fencer.hpp"
#include "rbd_lab.hpp"

using namespace corbd;
using namespace corbd::lab;
using Texts = std::vector<std::string>;

namespace {

/// Makes users, and clears the blocklist.
class Root : public Administrator {
 public:
  Root() { tell({{"prefix", "osd blocklist clear"}}); }
  ~Root() { tell({{"prefix", "osd blocklist clear"}}); }

  fence::Asker user(const std::string& name, const std::string& mon_caps, const std::string& osd_caps = {}) {
    boost::json::array caps{"mon", mon_caps};
    if (!osd_caps.empty()) caps.insert(caps.end(), {"osd", osd_caps});
    tell({{"prefix", "auth rm"}, {"entity", "client." + name}});
    tell({{"prefix", "auth get-or-create"}, {"entity", "client." + name}, {"caps", caps}});
    std::string key = tell({{"prefix", "auth get-key"}, {"entity", "client." + name}, {"format", "plain"}});
    return {"lab", name, Secret(key)};
  }
};

constexpr const char* kFencing = "profile rbd, allow command \"osd blocklist\"";

struct Scene {
  Agent agent;
  fence::Fencer fencer{*agent.clusters, [](const std::string&) -> result<std::vector<std::string>> {
                         return Texts{env("CORBD_LAB_MON")};
                       }};
  result<fence::Report> fence(const fence::Asker& asker, Texts blocks,
                              std::chrono::seconds duration = std::chrono::seconds(600)) {
    return agent.run(fencer.fence(asker, {std::move(blocks), duration}, agent.in(60s)));
  }
  result<fence::Report> unfence(const fence::Asker& asker, Texts blocks) {
    return agent.run(fencer.unfence(asker, {std::move(blocks)}, agent.in(60s)));
  }
  Texts fenced(const fence::Asker& asker) {
    Texts all;
    for (const auto& block : fence::blocks_of(agent.run(fencer.list(asker, agent.in(20s))).value()))
      all.push_back(block.text());
    return all;
  }
};

}  // namespace

TEST_CASE("blocks of both families are fenced, listed and unfenced") {
  Root root;
  const auto user = root.user("corbd-fencer", kFencing);
  Scene scene;
  REQUIRE(scene.fence(user, {"10.99.0.0/24", "10.98.0.7/32", "fd99::/64", "fd98::7/128"}));
  CHECK(scene.fenced(user) == Texts{"10.98.0.7/32", "10.99.0.0/24", "fd98::7/128", "fd99::/64"});
  CHECK(scene.fence(user, {"10.99.0.0/24"}, 60s).value().changed.size() == 1);
  CHECK(scene.fenced(user).size() == 4);
  REQUIRE(scene.unfence(user, {"10.99.0.0/24", "fd99::/64"}));
  CHECK(scene.fenced(user) == Texts{"10.98.0.7/32", "fd98::7/128"});
  CHECK(scene.unfence(user, {"10.99.0.0/24"}).value().changed.empty());
}

TEST_CASE("what another tool fenced, with bits below the length or as a bare address, is seen and unfenced") {
  Root root;
  const auto user = root.user("corbd-fencer", kFencing);
  root.tell({{"prefix", "osd blocklist"}, {"range", "range"}, {"blocklistop", "add"}, {"addr", "10.97.0.5/24"}});
  root.tell({{"prefix", "osd blocklist"}, {"blocklistop", "add"}, {"addr", "10.96.0.5"}});
  root.tell({{"prefix", "osd blocklist"}, {"blocklistop", "add"}, {"addr", "10.96.0.6:0/77"}});
  Scene scene;
  CHECK(scene.fenced(user) == Texts{"10.96.0.5/32", "10.97.0.0/24"});
  CHECK(scene.unfence(user, {"10.96.0.0/24"}).error().code == errc::failed_precondition);
  REQUIRE(scene.unfence(user, {"10.96.0.5/32"}));
  CHECK(scene.fenced(user) == Texts{"10.97.0.0/24"});
  const auto range = scene.unfence(user, {"10.97.0.0/24"});
  INFO((range ? "" : range.error().text));
  CHECK(range);
  CHECK(scene.fenced(user).empty());
}

TEST_CASE("a user without the caps is told which ones it lacks, and nothing is half done in silence", "[failure:222]") {
  Root root;
  // Without osd caps Ceph 18's OSDs refuse the connection, which librados then tries for ever (Ceph 16's refuse the
  // request).
  const auto node = root.user("corbd-noder", "profile rbd", "profile rbd");
  const auto reader = root.user("corbd-reader", "allow r", "profile rbd");
  Scene scene;
  REQUIRE(scene.fence(node, {"10.99.0.0/24"}));
  const auto kept = scene.unfence(node, {"10.99.0.0/24"});
  CHECK(kept.error().code == errc::permission_denied);
  CHECK(kept.error().text.find("allow command \"osd blocklist\"") != std::string::npos);
  CHECK(scene.fenced(node) == Texts{"10.99.0.0/24"});
  // What a node learns when it connects.
  Agent agent;
  for (const auto& [user, may] : {std::pair(node, true), {reader, false}}) {
    const image::Access as{"lab", access().monitors, user.user, user.key};
    CHECK(agent.run(agent.clusters->users(as, 1, "", agent.in(20s))));
    CHECK(agent.clusters->cannot_fence(as).has_value() == !may);
  }
  REQUIRE(agent.run(agent.clusters->shutdown(agent.in(20s))));
  const auto refused = scene.fence(reader, {"10.98.0.0/24"});
  CHECK(refused.error().code == errc::permission_denied);
  CHECK(refused.error().text.find("'profile rbd'") != std::string::npos);
}

TEST_CASE("a user is asked for the right to write to an image's header, which the question does not change") {
  Root root;
  Admin admin;
  admin.create("rights");
  Agent agent;
  const auto found = agent.run(agent.clusters->resolve(access(), {pool_name(), "", "rights"}, agent.in(20s)));
  REQUIRE(found);
  const auto before = agent.run(agent.clusters->header(access(), found->key, agent.in(20s)));
  REQUIRE(before);
  for (const auto& [osd_caps, may] :
       {std::pair("profile rbd", true), {"profile rbd-read-only", false}, {"allow rx", false}}) {
    const auto user = root.user("corbd-rights", "profile rbd", osd_caps);
    const image::Access as{"lab", access().monitors, user.user, user.key};
    INFO(osd_caps);
    CHECK(agent.run(agent.clusters->header(as, found->key, agent.in(20s))));
    const auto asked = agent.run(agent.clusters->may_write(as, found->key, agent.in(20s)));
    INFO((asked ? "" : asked.error().text));
    CHECK(asked.has_value() == may);
    if (!asked) CHECK(asked.error().code == errc::permission_denied);
  }
  const auto after = agent.run(agent.clusters->header(access(), found->key, agent.in(20s)));
  REQUIRE(after);
  CHECK(after->version == before->version);
  CHECK(after->break_time == before->break_time);
  auto gone = found->key;
  gone.image_id += "0";
  CHECK(agent.run(agent.clusters->may_write(access(), gone, agent.in(20s))).error().code == errc::not_found);
  CHECK(agent.run(agent.clusters->header(access(), gone, agent.in(20s))).error().code == errc::not_found);
  REQUIRE(agent.run(agent.clusters->shutdown(agent.in(20s))));
}

TEST_CASE("a client that another tool cut off for seconds is cut off again after them, even by the next agent",
          "[failure:164]") {
  Root root;
  const auto client = image::entry_of_client("10.95.0.1:0/7").value();
  const auto until_of = [&](Agent& agent) {
    const auto now = agent.run(agent.clusters->blocklist(access(), agent.in(20s))).value();
    const auto* entry = now.find(client.client);
    return entry == nullptr ? std::chrono::system_clock::time_point() : entry->until;
  };
  const auto in_days = [] { return std::chrono::system_clock::now() + 6 * std::chrono::hours(24); };
  const test::Folder folder;
  const bool dies = GENERATE(false, true);
  root.tell({{"prefix", "osd blocklist"}, {"blocklistop", "add"}, {"addr", client.client}, {"expire", 10.0}});
  auto agent = std::make_unique<Agent>(folder.path());
  const auto blocked = agent->run(agent->clusters->block(access(), {client}, image::kLongestAway, agent->in(20s)));
  REQUIRE(blocked);
  CHECK(blocked->front());
  CHECK(until_of(*agent) < in_days());
  if (dies) {
    REQUIRE(agent->run(agent->clusters->shutdown(agent->in(20s))));
    agent = std::make_unique<Agent>(folder.path());
  }
  for (int i = 0; i < 40 && until_of(*agent) < in_days(); ++i) agent->run_for(1s);
  CHECK(until_of(*agent) > in_days());
  agent->run_for(1s);
  CHECK(std::filesystem::is_empty(folder.path()));
  REQUIRE(agent->run(agent->clusters->shutdown(agent->in(20s))));
}

TEST_CASE("a take-over cuts a dead client off again if another tool cut it off for seconds only") {
  Root root;
  const std::string client = "10.95.0.2:0/8";
  root.tell({{"prefix", "osd blocklist"}, {"blocklistop", "add"}, {"addr", client}, {"expire", 10.0}});
  Agent agent;
  REQUIRE(agent.run(agent.clusters->inherit(access(), client, agent.in(20s))));
  REQUIRE(agent.run(agent.clusters->fence_dead(access(), agent.in(20s))));
  const auto lasts_for_days = [&] {
    const auto now = agent.run(agent.clusters->blocklist(access(), agent.in(20s))).value();
    const auto* entry = now.find(client);
    return entry != nullptr && entry->until > std::chrono::system_clock::now() + 6 * std::chrono::hours(24);
  };
  CHECK_FALSE(lasts_for_days());
  for (int i = 0; i < 40 && !lasts_for_days(); ++i) agent.run_for(1s);
  CHECK(lasts_for_days());
  REQUIRE(agent.run(agent.clusters->shutdown(agent.in(20s))));
}

TEST_CASE("a fence of a block that ends too early is refused, with its end, and stays", "[failure:164]") {
  Root root;
  const auto user = root.user("corbd-fencer", kFencing);
  Scene scene;
  REQUIRE(scene.fence(user, {"10.94.0.0/24"}, 60s));
  REQUIRE(scene.fence(user, {"10.94.0.0/24"}, 60s));
  const auto longer = scene.fence(user, {"10.94.0.0/24"}, 7 * std::chrono::hours(24));
  CHECK(longer.error().code == errc::failed_precondition);
  CHECK(longer.error().text.find("10.94.0.0/24 is in the blocklist already, until 20") != std::string::npos);
  CHECK(scene.fenced(user) == Texts{"10.94.0.0/24"});
}

TEST_CASE("a client that its node's fence refuses is ended, and cut off by an entry of its own", "[failure:142]") {
  Root root;
  Admin admin;
  admin.create("refused");
  Agent agent;
  std::string why;
  image::OpenOptions options;
  options.on_lost = [&](std::string text) { why = std::move(text); };
  auto image = agent.open("refused", options);
  REQUIRE(image);
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  const std::string client = (*image)->client();
  const auto end_refused = [&] { return agent.run(agent.clusters->end_refused(access(), agent.in(20s))); };
  const auto served = end_refused();
  REQUIRE(served);
  CHECK(served->known == Texts{client});
  CHECK(served->left == Texts{client});
  CHECK(why.empty());
  const std::string block = image::AddressBlock::host_of_client(client).value().text();
  root.tell({{"prefix", "osd blocklist"}, {"range", "range"}, {"blocklistop", "add"}, {"addr", block}});
  CHECK(end_refused()->left == Texts{client});
  CHECK(why.find("blocklisted") != std::string::npos);
  static_cast<void>(agent.run((*image)->close(agent.in(20s))));
  image->reset();
  auto ended = end_refused();
  for (int i = 0; i < 40 && ended && !ended->left.empty(); ++i) {
    agent.run_for(500ms);
    ended = end_refused();
  }
  REQUIRE(ended);
  CHECK(ended->known == Texts{client});
  CHECK(ended->left.empty());
  CHECK(ended->ending_early.empty());
  root.tell({{"prefix", "osd blocklist"}, {"range", "range"}, {"blocklistop", "rm"}, {"addr", block}});
  const auto now = agent.run(agent.clusters->blocklist(access(), agent.in(20s))).value();
  const auto* entry = now.find(client);
  REQUIRE(entry != nullptr);
  CHECK(entry->kind == image::BlocklistEntry::Kind::client);
  CHECK(entry->until > std::chrono::system_clock::now() + 6 * std::chrono::hours(24));
  // Somebody clears the blocklist, and the next check adds the entry anew.
  root.tell({{"prefix", "osd blocklist"}, {"blocklistop", "rm"}, {"addr", client}});
  CHECK(agent.run(agent.clusters->blocklist(access(), agent.in(20s))).value().find(client) == nullptr);
  REQUIRE(end_refused());
  CHECK(agent.run(agent.clusters->blocklist(access(), agent.in(20s))).value().find(client) != nullptr);
  REQUIRE(agent.run(agent.clusters->shutdown(agent.in(20s))));
}

// An OSD learns of a fence with the first request of a client that has the map.
TEST_CASE("once a successor has used the image after a fence, a fenced client's writes arrive no more",
          "[failure:141]") {
  Root root;
  const auto user = root.user("corbd-fencer", kFencing);
  Admin admin;
  admin.create("fenced");
  Agent served;
  std::string why;
  image::OpenOptions options;
  options.on_lost = [&](std::string text) { why = std::move(text); };
  auto image = served.open("fenced", options);
  REQUIRE(image);
  REQUIRE(served.run((*image)->acquire_lock(served.in(20s))));
  CHECK(write(**image, 0, pattern(4096, 1)) == 0);
  Scene scene;
  const auto client = image::entry_of_client((*image)->client());
  REQUIRE(client);
  const auto to = access();
  const auto blocked = scene.agent.run(scene.agent.clusters->block(to, {*client}, 600s, scene.agent.in(20s)));
  REQUIRE(blocked);
  image::OpenOptions reads;
  reads.read_only = true;
  REQUIRE(scene.agent.open("fenced", reads));
  CHECK(write(**image, 4096, pattern(4096, 2)) != 0);
  served.run_for(200ms);
  CHECK(why.find("blocklisted") != std::string::npos);
  CHECK(admin.read("fenced", 0, 4096) == pattern(4096, 1));
  CHECK((admin.read("fenced", 4096, 4096) == std::vector<std::byte>(4096)));
}

TEST_CASE("real monitors do not shorten an entry", "[failure:164]") {
  Scene scene;
  const auto client = image::entry_of_client("10.98.0.7:0/5").value();
  const auto block = [&](std::chrono::seconds lasts) {
    const auto done = scene.agent.run(scene.agent.clusters->block(access(), {client}, lasts, scene.agent.in(20s)));
    REQUIRE(done);
    REQUIRE(done->front());
    const auto now = scene.agent.run(scene.agent.clusters->blocklist(access(), scene.agent.in(20s)));
    REQUIRE(now);
    const auto* entry = now->find(client.client);
    REQUIRE(entry != nullptr);
    return entry->until;
  };
  const auto longer = block(7200s);
  CHECK(block(600s) >= longer);
}

// Five minutes: by name only, lab_rbd "[fence_compared]".
TEST_CASE("256 addresses are fenced by one call and by 256 runs of ceph", "[.][fence_compared]") {
  Root root;
  const auto user = root.user("corbd-fencer", kFencing);
  Scene scene;
  Texts blocks;
  for (int i = 0; i < 256; ++i) blocks.push_back("10.99.1." + std::to_string(i) + "/32");
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(scene.fence(user, blocks));
  const auto middle = std::chrono::steady_clock::now();
  for (int i = 0; i < 256; ++i) {
    const std::string line =
        "ceph -c " + env("CORBD_LAB_CONF") + " osd blocklist add 10.99.2." + std::to_string(i) + " 600 >/dev/null 2>&1";
    REQUIRE(std::system(line.c_str()) == 0);
  }
  const auto end = std::chrono::steady_clock::now();
  const std::chrono::duration<double> ours = middle - begin, theirs = end - middle;
  std::cout << "256 addresses: one call " << ours.count() << " s, 256 runs of ceph " << theirs.count() << " s, ratio "
            << theirs / ours << std::endl;
}

TEST_CASE("an image that one client leaves is taken by the same agent's client of another user, and nobody is fenced") {
  Root root;
  const auto user = root.user("corbd-next", "profile rbd", "profile rbd");
  image::Access to_next = access();
  to_next.user = user.user;
  to_next.key = user.key;
  for (const std::uint64_t features : {61, 1}) {
    Admin admin;
    admin.create("moves", 64 << 20, features);
    Agent agent;
    auto before = agent.open("moves");
    REQUIRE(before);
    REQUIRE(agent.run((*before)->ownership(agent.in(20s))));
    REQUIRE(agent.run((*before)->acquire_lock(agent.in(20s))));
    const std::string client = (*before)->client();
    CHECK(write(**before, 0, pattern(4096, 1)) == 0);
    auto next = agent.run(agent.clusters->open(to_next, (*before)->key(), {}, agent.in(20s)));
    REQUIRE(next);
    CHECK((*next)->client() != client);
    CHECK(agent.ownership(**next).error().code == errc::unavailable);
    REQUIRE(agent.run((*before)->keep_lock(agent.in(20s))));
    agent.close(**before);
    const auto seen = agent.ownership(**next);
    REQUIRE(seen);
    if (features == 61) {
      CHECK(seen->lock == image::Ownership::Lock::our_dead);
      CHECK(seen->owner == client);
      REQUIRE(agent.run((*next)->break_dead_lock(seen->owner, kBreakTime, agent.in(20s))));
    } else {
      CHECK(seen->handed_over);
    }
    REQUIRE(agent.run((*next)->acquire_lock(agent.in(20s))));
    agent.run([](image::Image& left, Until until) -> task<bool> {
      co_await left.lock_taken_over(until);
      co_return true;
    }(**before, agent.in(20s)));
    CHECK(write(**next, 4096, pattern(4096, 2)) == 0);
    CHECK(admin.read("moves", 0, 4096) == pattern(4096, 1));
    CHECK(admin.read("moves", 4096, 4096) == pattern(4096, 2));
    const auto cut = agent.run(agent.clusters->blocklist(access(), agent.in(20s)));
    REQUIRE(cut);
    CHECK(cut->find(client) == nullptr);
    agent.close(std::move(*next));
  }
}
