// Tests the rbd room against a real cluster. CORBD_LAB_MON, _USER, _KEY and _POOL name it (scripts/lab/ceph env DIR).
// ctest does not run this.
#define CATCH_CONFIG_RUNNER
#include <unistd.h>

#include <array>

#include "rbd_lab.hpp"

using namespace corbd;
using namespace corbd::lab;
using Lock = image::Ownership::Lock;

namespace {

/// Another client's persistent cache may have the newest writes of an image.
struct OfOtherCache {
  OfOtherCache(Admin& by, std::string image) : admin(by), name(std::move(image)) {
    admin.create(name);
    had = admin.features(name);
  }
  void set(bool dirty) const { admin.set_dirty_cache(name, dirty); }
  Admin& admin;
  const std::string name;
  std::uint64_t had = 0;
};

}  // namespace

TEST_CASE("what is written is read back, by this client and by another") {
  Admin admin;
  admin.create("roundtrip");
  Agent agent;
  auto image = agent.open("roundtrip");
  REQUIRE(image);
  CHECK((*image)->size() == 64 << 20);
  CHECK((*image)->exclusive_lock());
  for (unsigned seed = 0; seed < 8; ++seed) {
    const auto bytes = pattern(1 << 20, seed);
    REQUIRE(write(**image, seed * (3 << 20) + 512, bytes) == 0);
    CHECK(read(**image, seed * (3 << 20) + 512, bytes.size()) == bytes);
    CHECK(admin.read("roundtrip", seed * (3 << 20) + 512, bytes.size()) == bytes);
  }
  Wait flush, discard, zeroes;
  (*image)->flush(flush);
  CHECK(flush.get() == 0);
  (*image)->discard(discard, 0, 4 << 20);
  CHECK(discard.get() == 0);
  (*image)->write_zeroes(zeroes, (6 << 20) + 4096, 8192);
  CHECK(zeroes.get() == 0);
  CHECK(read(**image, 1024, 4096) == std::vector<std::byte>(4096));
  CHECK(read(**image, (6 << 20) + 4096, 8192) == std::vector<std::byte>(8192));
  agent.close(std::move(*image));
  CHECK(agent.run(agent.clusters->shutdown(agent.in(20s))));
  CHECK(agent.incarnation_files() == 0);
}

TEST_CASE("an option of Ceph that must be off in our client is off, whatever the cluster's configuration says") {
  const std::string option = GENERATE("osd_min_split_replica_read_size", "rbd_mtime_update_interval");
  const auto ours = [&] {
    Agent agent;
    return agent.run(agent.clusters->setting(access(), option, agent.in(20s))).value();
  };
  if (ours().empty()) {
    WARN("skipped: this release of Ceph does not know " << option);
    return;
  }
  Administrator administrator;
  administrator.tell({{"prefix", "config set"}, {"who", "client"}, {"name", option}, {"value", "4096"}});
  std::array<char, 16> others{};
  Admin::check(rados_conf_get(Admin().cluster, option.c_str(), others.data(), others.size()));
  const std::string found = ours();
  administrator.tell({{"prefix", "config rm"}, {"who", "client"}, {"name", option}});
  CHECK(std::string(others.data()) == "4096");
  CHECK(found == "0");
}

TEST_CASE("a read beyond the end and other errors come back as they are") {
  Admin admin;
  admin.create("edges");
  Agent agent;
  auto image = agent.open("edges");
  REQUIRE(image);
  CHECK(write(**image, 1ULL << 40, pattern(4096, 1)) < 0);
  const auto tail = read(**image, (64 << 20) - 4096, 8192);
  CHECK(tail == std::vector<std::byte>(8192));
  agent.close(std::move(*image));
}

TEST_CASE("a missing object and a refused one have different errors") {
  Agent agent;
  const auto no_image = agent.run(agent.clusters->resolve(access(), {pool_name(), "", "nowhere"}, agent.in(20s)));
  REQUIRE_FALSE(no_image);
  CHECK(no_image.error().code == errc::not_found);
  CHECK_THAT(no_image.error().text, ContainsSubstring(pool_name() + "/nowhere"));
  const auto no_pool = agent.run(agent.clusters->resolve(access(), {"nopool", "", "nowhere"}, agent.in(20s)));
  REQUIRE_FALSE(no_pool);
  CHECK(no_pool.error().code == errc::not_found);
  CHECK_THAT(no_pool.error().text, ContainsSubstring("pool nopool"));
  auto wrong = access();
  std::string other_key(wrong.key.reveal());
  other_key[25] = other_key[25] == 'A' ? 'B' : 'A';
  wrong.key = Secret(other_key);
  const auto refused = agent.run(agent.clusters->resolve(wrong, {pool_name(), "", "nowhere"}, agent.in(20s)));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unauthenticated);
  CHECK_THAT(refused.error().text, !ContainsSubstring(other_key.substr(0, 8)));
  wrong.key = Secret("no key at all");
  const auto garbage = agent.run(agent.clusters->resolve(wrong, {pool_name(), "", "nowhere"}, agent.in(20s)));
  REQUIRE_FALSE(garbage);
  UNSCOPED_INFO(garbage.error().text);
  CHECK(garbage.error().code == errc::unauthenticated);
  wrong = access();
  wrong.user = "nobody";
  const auto nobody = agent.run(agent.clusters->resolve(wrong, {pool_name(), "", "nowhere"}, agent.in(20s)));
  REQUIRE_FALSE(nobody);
  UNSCOPED_INFO(nobody.error().text);
  CHECK(nobody.error().code == errc::unauthenticated);
}

TEST_CASE("silent monitors cause unavailable before the caller's deadline, and use no other cluster's threads",
          "[failure:13][rule:24]") {
  Admin admin;
  admin.create("other");
  Agent agent;
  auto dead = access();
  dead.cluster_id = "dead";
  dead.monitors = {"127.0.0.1:1"};
  const auto start = std::chrono::steady_clock::now();
  const auto answer = agent.run(agent.clusters->resolve(dead, {pool_name(), "", "x"}, agent.in(1s)));
  CHECK(std::chrono::steady_clock::now() - start < 2s);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == errc::unavailable);
  CHECK_THAT(answer.error().text, ContainsSubstring("dead") && ContainsSubstring("127.0.0.1:1"));
  auto image = agent.open("other");
  REQUIRE(image);
  CHECK(std::chrono::steady_clock::now() - start < 4s);
  agent.close(std::move(*image));
  // The attempt ends by itself, and shutdown waits for it.
  CHECK(agent.run(agent.clusters->shutdown(agent.in(20s))));
  CHECK(agent.incarnation_files() == 0);
}

TEST_CASE("an image that would acknowledge before storing is refused", "[rule:1]") {
  Admin admin;
  admin.create("cached");
  Agent agent;
  admin.set_metadata("cached", "conf_rbd_cache", "true");
  const auto refused = agent.open("cached");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unsafe_config);
  CHECK_THAT(refused.error().text,
             ContainsSubstring("rbd image-meta remove " + pool_name() + "/cached conf_rbd_cache"));

  admin.create("cached");
  Admin::check(rbd_pool_metadata_set(admin.io, "conf_rbd_persistent_cache_mode", "ssd"));
  const auto pool_wide = agent.open("cached");
  Admin::check(rbd_pool_metadata_remove(admin.io, "conf_rbd_persistent_cache_mode"));
  REQUIRE_FALSE(pool_wide);
  CHECK(pool_wide.error().code == errc::unsafe_config);
  CHECK_THAT(pool_wide.error().text, ContainsSubstring("rbd config pool remove " + pool_name()));
  auto image = agent.open("cached");
  REQUIRE(image);
  agent.close(std::move(*image));
}

TEST_CASE("an image that is open to read tells, once it is asked, of another client's cache that is dirty by now") {
  Admin admin;
  const OfOtherCache dirty(admin, "dirty later");
  Agent agent;
  image::OpenOptions options;
  options.read_only = true;
  auto image = agent.open("dirty later", options);
  REQUIRE(image);
  dirty.set(true);
  CHECK(agent.run((*image)->refresh(agent.in(20s))));
  CHECK_THAT((*image)->refused_again(), ContainsSubstring("rbd persistent-cache flush"));
  dirty.set(false);
  CHECK(agent.run((*image)->refresh(agent.in(20s))));
  CHECK((*image)->refused_again().empty());
  agent.close(std::move(*image));
}

TEST_CASE("an open image that is asked tells of a cache that its pool switched on meanwhile") {
  Admin admin;
  const std::uint64_t features = GENERATE(61, 1);  // with and without exclusive-lock
  admin.create("pooled", 64 << 20, features);
  Agent agent;
  auto image = agent.open("pooled");
  REQUIRE(image);
  CHECK((*image)->refused_again().empty());
  Admin::check(rbd_pool_metadata_set(admin.io, "conf_rbd_persistent_cache_mode", "ssd"));
  CHECK(agent.run((*image)->refresh(agent.in(20s))));
  Admin::check(rbd_pool_metadata_remove(admin.io, "conf_rbd_persistent_cache_mode"));
  CHECK_THAT((*image)->refused_again(), ContainsSubstring("rbd config pool remove " + pool_name()));
  CHECK(agent.run((*image)->refresh(agent.in(20s))));
  CHECK((*image)->refused_again().empty());
  agent.close(std::move(*image));
}

TEST_CASE("an open image tells of a cache that its pool switched on meanwhile, though nobody asks it") {
  Admin admin;
  const std::uint64_t features = GENERATE(61, 1);  // with and without exclusive-lock
  admin.create("pooled", 64 << 20, features);
  Agent agent({}, 32, false, 200ms);
  auto image = agent.open("pooled");
  REQUIRE(image);
  Admin::check(rbd_pool_metadata_set(admin.io, "conf_rbd_persistent_cache_mode", "ssd"));
  for (int i = 0; i < 100 && (*image)->refused_again().empty(); ++i) agent.run_for(100ms);
  Admin::check(rbd_pool_metadata_remove(admin.io, "conf_rbd_persistent_cache_mode"));
  CHECK_THAT((*image)->refused_again(), ContainsSubstring("rbd config pool remove " + pool_name()));
  for (int i = 0; i < 100 && !(*image)->refused_again().empty(); ++i) agent.run_for(100ms);
  CHECK((*image)->refused_again().empty());
  agent.close(std::move(*image));
}

TEST_CASE("an image is refused to writers and readers while its header says that another client's cache is dirty",
          "[failure:190]") {
  Admin admin;
  const OfOtherCache dirty(admin, "dirty");
  dirty.set(true);
  Agent agent;
  const auto found = agent.run(agent.clusters->resolve(access(), {pool_name(), "", "dirty"}, agent.in(20s)));
  REQUIRE(found);
  CHECK((found->features.bits & image::kDirtyCache) != 0);
  image::OpenOptions options;
  options.read_only = GENERATE(true, false);
  const auto refused = agent.open("dirty", options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unsafe_config);
  CHECK_THAT(refused.error().text, ContainsSubstring("rbd persistent-cache flush"));
  options.despite_dirty_cache = true;
  auto seen = agent.open("dirty", options);
  REQUIRE(seen);
  auto who = agent.run((*seen)->ownership(agent.in(20s)));
  REQUIRE(who);
  CHECK((who->features.bits & image::kDirtyCache) != 0);
  dirty.set(false);
  who = agent.run((*seen)->ownership(agent.in(20s)));
  REQUIRE(who);
  CHECK(who->features.bits == dirty.had);
  agent.close(std::move(*seen));
}

TEST_CASE("an image's metadata decide which OSD answers its reads, also while it is open") {
  Admin admin;
  admin.create("balanced");
  Agent agent;
  auto image = agent.open("balanced");
  REQUIRE(image);
  CHECK((*image)->read_policy() == image::ReadPolicy::primary);
  admin.set_metadata("balanced", "conf_rbd_read_from_replica_policy", "balance");
  REQUIRE(agent.run((*image)->refresh(agent.in(20s))));
  CHECK((*image)->read_policy() == image::ReadPolicy::balance);
  agent.close(std::move(*image));
}

TEST_CASE("an image made again under the same name is another image") {
  Admin admin;
  admin.create("again");
  Agent agent;
  const auto before = agent.run(agent.clusters->resolve(access(), {pool_name(), "", "again"}, agent.in(20s)));
  REQUIRE(before);
  admin.create("again");
  const auto opened = agent.run(agent.clusters->open(access(), before->key, {}, agent.in(20s)));
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == errc::not_found);
}

TEST_CASE("an empty image is recognised with and without fast-diff", "[rule:10]") {
  const std::uint64_t features = GENERATE(61, 5, 1);
  Admin admin;
  admin.create("empty", 6ULL << 30, features);
  Agent agent;
  auto image = agent.open("empty");
  REQUIRE(image);
  auto data = agent.run((*image)->has_data(agent.in(60s)));
  REQUIRE(data);
  CHECK_FALSE(*data);
  REQUIRE(write(**image, 5ULL << 30, pattern(4096, 1)) == 0);
  data = agent.run((*image)->has_data(agent.in(60s)));
  REQUIRE(data);
  CHECK(*data);
  agent.close(std::move(*image));
}

TEST_CASE("a check for emptiness that takes too long is an error") {
  Admin admin;
  admin.create("sparse", 32ULL << 30, 5);
  Agent agent;
  auto image = agent.open("sparse");
  REQUIRE(image);
  const auto data = agent.run((*image)->has_data(agent.in(50ms)));
  CHECK_FALSE(data);
  agent.close(std::move(*image));
}

TEST_CASE("metadata is written, read and removed") {
  Admin admin;
  admin.create("meta");
  Agent agent;
  auto image = agent.open("meta");
  REQUIRE(image);
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  CHECK_FALSE(agent.run((*image)->metadata("corbd/format", agent.in(20s)))->has_value());
  const std::string value(6000, 'x');
  REQUIRE(agent.run((*image)->set_metadata("corbd/format", value, agent.in(20s))));
  CHECK(agent.run((*image)->metadata("corbd/format", agent.in(20s))).value() == value);
  CHECK(agent.run((*image)->remove_metadata("corbd/format", agent.in(20s))));
  CHECK(agent.run((*image)->remove_metadata("corbd/format", agent.in(20s))));
  CHECK_FALSE(agent.run((*image)->metadata("corbd/format", agent.in(20s)))->has_value());
  agent.close(std::move(*image));
}

TEST_CASE("the notes for ceph-csi's controller are written into an image's metadata, even through a read-only open") {
  const bool reads = GENERATE(false, true);
  CAPTURE(reads);
  Admin admin;
  admin.create("noted");
  Agent agent;
  image::OpenOptions options;
  options.read_only = reads;
  auto image = agent.open("noted", options);
  REQUIRE(image);
  if (!reads) REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  const std::string key =
      ".rbd.csi.ceph.com/userid/0001-0003-lab-0000000000000001-50d53503-9da1-11ed-847e-bacf8f2f1297/node-1";
  REQUIRE(agent.run((*image)->set_metadata(key, "node", agent.in(20s))));
  REQUIRE(agent.run((*image)->set_metadata(key, "other", agent.in(20s))));
  CHECK(admin.metadata("noted", key) == "other");
  CHECK((*image)->client().find(":0/") != std::string::npos);
  agent.close(std::move(*image));
}

TEST_CASE("a read-only open writes metadata past the lock's owner, who keeps the lock and sees the change") {
  Admin admin;
  admin.create("beside");
  Agent agent;
  rbd_image_t owner = admin.open("beside");
  Admin::check(rbd_lock_acquire(owner, RBD_LOCK_MODE_EXCLUSIVE));
  image::OpenOptions options;
  options.read_only = true;
  auto image = agent.open("beside", options);
  REQUIRE(image);
  REQUIRE(agent.run((*image)->set_metadata("corbd/format", "mkfs", agent.in(20s))));
  CHECK(agent.run((*image)->metadata("corbd/format", agent.in(20s))).value() == "mkfs");
  std::array<char, 64> seen{};
  std::size_t length = seen.size();
  Admin::check(rbd_metadata_get(owner, "corbd/format", seen.data(), &length));
  CHECK(std::string(seen.data()) == "mkfs");
  CHECK(agent.run((*image)->remove_metadata("corbd/format", agent.in(20s))));
  CHECK(agent.run((*image)->remove_metadata("corbd/format", agent.in(20s))));
  CHECK_FALSE(agent.run((*image)->metadata("corbd/format", agent.in(20s)))->has_value());
  const auto who = agent.ownership(**image);
  REQUIRE(who);
  CHECK(who->foreign_watchers.size() == 1);
  CHECK(who->clients.at(who->owner).starts_with("client."));
  agent.close(std::move(*image));
  Admin::check(rbd_close(owner));
}

TEST_CASE("a full connection is followed by another, which goes when it is empty") {
  Admin admin;
  const test::Folder folder;
  Agent agent(folder.path(), 2);
  std::vector<std::unique_ptr<image::Image>> images;
  for (const std::string name : {"a", "b", "c"}) {
    admin.create("shard-" + name);
    auto image = agent.open("shard-" + name);
    REQUIRE(image);
    images.push_back(std::move(*image));
  }
  CHECK(agent.incarnation_files() == 2);
  CHECK(agent.run(agent.clusters->shutdown(agent.in(1s))).error().code == errc::busy);
  for (auto& image : images) agent.close(std::move(image));
  CHECK(agent.run(agent.clusters->shutdown(agent.in(20s))));
  CHECK(agent.incarnation_files() == 0);
}

TEST_CASE("the size follows a resize by another client", "[failure:17]") {
  Admin admin;
  admin.create("grows");
  Agent agent;
  auto image = agent.open("grows");
  REQUIRE(image);
  rbd_image_t other = admin.open("grows");
  Admin::check(rbd_resize(other, 128 << 20));
  Admin::check(rbd_close(other));
  for (int i = 0; i < 50 && (*image)->size() != 128 << 20; ++i) agent.run_for(100ms);
  CHECK((*image)->size() == 128 << 20);
  agent.close(std::move(*image));
}

TEST_CASE("an image needs flushes while it has the feature journaling, which may come and go while it is open",
          "[rule:1a]") {
  Admin admin;
  admin.create("journaled");
  Agent agent;
  auto image = agent.open("journaled");
  REQUIRE(image);
  CHECK_FALSE((*image)->needs_flush());
  rbd_image_t other = admin.open("journaled");
  for (const bool on : {true, false}) {
    Admin::check(rbd_update_features(other, RBD_FEATURE_JOURNALING, on ? 1 : 0));
    for (int i = 0; i < 50 && (*image)->needs_flush() != on; ++i) agent.run_for(100ms);
    CHECK((*image)->needs_flush() == on);
  }
  Admin::check(rbd_close(other));
  agent.close(std::move(*image));
}

TEST_CASE("a lock that somebody made by hand is not broken, and the error says how to remove it") {
  Admin admin;
  admin.create("by_hand");
  rbd_image_t other = admin.open("by_hand");
  Admin::check(rbd_lock_exclusive(other, "maintenance"));
  // The lock stays, without a watch.
  Admin::check(rbd_close(other));
  Agent agent;
  auto image = agent.open("by_hand");
  REQUIRE(image);
  const auto seen = agent.ownership(**image);
  REQUIRE_FALSE(seen);
  CHECK(seen.error().code == errc::in_use);
  CHECK_THAT(seen.error().text, ContainsSubstring("rbd lock remove"));
  CHECK_FALSE(agent.run((*image)->acquire_lock(agent.in(20s))));
  agent.close(std::move(*image));
}

TEST_CASE("a foreign watcher and a foreign lock owner are seen, and the lock is not taken from it") {
  Admin admin;
  admin.create("shared");
  Agent agent;
  auto image = agent.open("shared");
  REQUIRE(image);
  CHECK(agent.ownership(**image)->lock == Lock::none);
  rbd_image_t other = admin.open("shared");
  auto seen = agent.ownership(**image);
  REQUIRE(seen);
  CHECK(seen->foreign_watchers.size() == 1);
  Admin::check(rbd_lock_acquire(other, RBD_LOCK_MODE_EXCLUSIVE));
  seen = agent.ownership(**image);
  REQUIRE(seen);
  CHECK(seen->lock == Lock::other);
  const auto taken = agent.run((*image)->acquire_lock(agent.in(60s)));
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == errc::in_use);
  CHECK_FALSE(agent.run((*image)->break_dead_lock(seen->owner, kBreakTime, agent.in(20s))));
  Admin::check(rbd_close(other));
  // Who had it meanwhile may have written.
  CHECK(agent.run((*image)->acquire_lock(agent.in(20s))).error().code == errc::unproven);
  REQUIRE(agent.ownership(**image));
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  seen = agent.ownership(**image);
  REQUIRE(seen);
  CHECK(seen->lock == Lock::mine);
  CHECK(seen->foreign_watchers.empty());
  CHECK(agent.run((*image)->release_lock(agent.in(20s))));
  CHECK(agent.ownership(**image)->lock == Lock::none);
  agent.close(std::move(*image));
}

TEST_CASE("a snapshot is served as it was") {
  Admin admin;
  // Snapshots of an earlier run keep the image from being removed.
  const std::string name = "snapped-" + std::to_string(::getpid());
  admin.create(name);
  Agent agent;
  rbd_image_t other = admin.open(name);
  const auto before = pattern(4096, 1), after = pattern(4096, 2);
  Admin::check(static_cast<int>(rbd_write(other, 0, before.size(), reinterpret_cast<const char*>(before.data()))));
  Admin::check(rbd_snap_create(other, "s"));
  std::uint64_t snap = 0;
  Admin::check(rbd_snap_get_id(other, "s", &snap));
  Admin::check(static_cast<int>(rbd_write(other, 0, after.size(), reinterpret_cast<const char*>(after.data()))));
  auto found = agent.run(agent.clusters->resolve(access(), {pool_name(), "", name}, agent.in(20s)));
  REQUIRE(found);
  found->key.snap_id = snap;
  auto image = agent.run(agent.clusters->open(access(), found->key, {}, agent.in(20s)));
  REQUIRE(image);
  CHECK((*image)->read_only());
  CHECK(read(**image, 0, 4096) == before);
  CHECK(write(**image, 0, after) == -EROFS);
  agent.close(std::move(*image));
  found->key.snap_id = 9999;
  const auto gone = agent.run(agent.clusters->open(access(), found->key, {}, agent.in(20s)));
  REQUIRE_FALSE(gone);
  CHECK(gone.error().code == errc::not_found);
  Admin::check(rbd_snap_remove(other, "s"));
  Admin::check(rbd_close(other));
  admin.remove(name);
}

int main(int argc, char** argv) {
  for (const char* name : {"CORBD_LAB_MON", "CORBD_LAB_USER", "CORBD_LAB_KEY", "CORBD_LAB_POOL"})
    if (env(name).empty()) {
      std::printf("skipped: %s is not set\n", name);
      return 0;
    }
  const int failed = Catch::Session().run(argc, argv);
  // As the agent ends. Tests leave threads in librados behind, which use what exit() would destroy.
  std::fflush(nullptr);
  ::_exit(failed);
}
