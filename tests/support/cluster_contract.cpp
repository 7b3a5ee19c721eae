#include "support/cluster_contract.hpp"

#include <algorithm>

#include "support/catch.hpp"

namespace corbd::test {
namespace {

using namespace std::chrono_literals;
using image::Ownership;
using Lock = Ownership::Lock;
using Opened = std::unique_ptr<image::Image>;

constexpr std::int64_t kBreakTime = 3'000'000'000;  ///< seconds, independent of any clock

image::Name name_of(ContractCluster& on, const std::string& image) { return {on.pool(), "", image}; }

image::Resolved resolve(ContractCluster& on, ContractNode& by, const std::string& image) {
  auto found = by.run(by.clusters().resolve(on.access(), name_of(on, image), by.in(20s)));
  INFO((found ? "" : found.error().text));
  REQUIRE(found);
  return *found;
}

result<Opened> try_open(ContractCluster& on, ContractNode& by, const image::Key& key,
                        const image::OpenOptions& options = {}) {
  return by.run(by.clusters().open(on.access(), key, options, by.in(30s)));
}

/// Opens an image as the planner does.
Opened open(ContractCluster& on, ContractNode& by, const std::string& image, const image::OpenOptions& options = {}) {
  const auto found = resolve(on, by, image);
  REQUIRE(by.run(by.clusters().fence_dead(on.access(), by.in(30s))));
  auto opened = try_open(on, by, found.key, options);
  INFO((opened ? "" : opened.error().text));
  REQUIRE(opened);
  return std::move(*opened);
}

Ownership users_of(ContractNode& by, image::Image& image) {
  auto seen = by.run(image.ownership(by.in(30s)));
  INFO((seen ? "" : seen.error().text));
  REQUIRE(seen);
  return *seen;
}

errc acquire(ContractNode& by, image::Image& image) {
  const auto done = by.run(image.acquire_lock(by.in(60s)));
  return done ? errc::ok : done.error().code;
}

errc break_lock(ContractNode& by, image::Image& image, const std::string& owner) {
  const auto done = by.run(image.break_dead_lock(owner, kBreakTime, by.in(30s)));
  return done ? errc::ok : done.error().code;
}

void close(ContractNode& by, image::Image& image) { CHECK(by.run(image.close(by.in(30s)))); }

image::OpenOptions to_read() {
  image::OpenOptions options;
  options.read_only = true;
  return options;
}

std::optional<std::string> metadata(ContractNode& by, image::Image& image, const std::string& name) {
  auto found = by.run(image.metadata(name, by.in(30s)));
  REQUIRE(found);
  return *found;
}

image::Header header(ContractCluster& on, ContractNode& by, const image::Key& key) {
  auto found = by.run(by.clusters().header(on.access(), key, by.in(30s)));
  REQUIRE(found);
  return *found;
}

image::Blocklist blocklist(ContractCluster& on, ContractNode& by) {
  auto found = by.run(by.clusters().blocklist(on.access(), by.in(30s)));
  REQUIRE(found);
  return *found;
}

void block(ContractCluster& on, ContractNode& by, const std::string& client, std::chrono::seconds lasts = 24h) {
  const auto entry = image::entry_of_client(client);
  REQUIRE(entry);
  const auto done = by.run(by.clusters().block(on.access(), {*entry}, lasts, by.in(30s)));
  REQUIRE(done);
  REQUIRE(done->size() == 1);
  CHECK(done->front());
}

// --- names and users

void names(ContractCluster& on) {
  auto& us = on.ours();
  const auto code = [&](const image::Access& access, const image::Name& name) {
    const auto answer = us.run(us.clusters().resolve(access, name, us.in(20s)));
    return answer ? errc::ok : answer.error().code;
  };
  CHECK(code(on.access(), name_of(on, "nowhere")) == errc::not_found);
  CHECK(code(on.access(), {"nopool", "", "nowhere"}) == errc::not_found);
  auto stranger = on.access();
  stranger.user = "nobody";
  CHECK(code(stranger, name_of(on, "nowhere")) == errc::unauthenticated);
  auto wrong = on.access();
  wrong.key = Secret("no key at all");
  CHECK(code(wrong, name_of(on, "nowhere")) == errc::unauthenticated);
}

void looks(ContractCluster& on) {
  on.create("contract", true);
  on.create("contract-plain", false);
  auto& us = on.ours();
  const auto locked = resolve(on, us, "contract"), plain = resolve(on, us, "contract-plain");
  CHECK(locked.exclusive_lock);
  CHECK_FALSE(plain.exclusive_lock);
  CHECK(locked.size > 0);
  CHECK(locked.name == name_of(on, "contract"));
  CHECK(locked.key.snap_id == 0);
  CHECK(locked.key.pool_id == plain.key.pool_id);
  CHECK(locked.key.image_id != plain.key.image_id);
  CHECK(header(on, us, locked.key).features.bits == locked.features.bits);
  CHECK(us.clusters().fsid_of(on.access().monitors) == locked.key.fsid);
}

void made_again(ContractCluster& on) {
  on.create("contract", true);
  auto& us = on.ours();
  const auto before = resolve(on, us, "contract");
  REQUIRE(us.run(us.clusters().may_write(on.access(), before.key, us.in(30s))));
  on.create("contract", true);
  REQUIRE(us.run(us.clusters().fence_dead(on.access(), us.in(30s))));
  CHECK(try_open(on, us, before.key).error().code == errc::not_found);
  CHECK(us.run(us.clusters().header(on.access(), before.key, us.in(30s))).error().code == errc::not_found);
  CHECK(us.run(us.clusters().may_write(on.access(), before.key, us.in(30s))).error().code == errc::not_found);
  CHECK(resolve(on, us, "contract").key.image_id != before.key.image_id);
}

// --- locks and watches

void lock_of_another_node(ContractCluster& on) {
  on.create("contract", true);
  auto &us = on.ours(), &them = on.other();
  const Opened mine = open(on, us, "contract"), theirs = open(on, them, "contract");
  auto seen = users_of(us, *mine);
  CHECK(seen.lock == Lock::none);
  CHECK(seen.owner.empty());
  CHECK(seen.self == mine->client());
  CHECK(seen.foreign_watchers == std::vector{theirs->client()});
  REQUIRE(acquire(us, *mine) == errc::ok);
  CHECK(acquire(us, *mine) == errc::ok);
  CHECK(users_of(us, *mine).lock == Lock::mine);
  seen = users_of(them, *theirs);
  CHECK(seen.lock == Lock::other);
  CHECK(seen.owner == mine->client());
  CHECK(seen.foreign_watchers == std::vector{mine->client()});
  CHECK(acquire(them, *theirs) == errc::in_use);
  close(us, *mine);
  seen = users_of(them, *theirs);
  CHECK(seen.lock == Lock::none);
  CHECK(seen.foreign_watchers.empty());
  CHECK(acquire(them, *theirs) == errc::ok);
  close(them, *theirs);
}

void lock_after_another(ContractCluster& on) {
  on.create("contract", true);
  auto &us = on.ours(), &them = on.other();
  const Opened mine = open(on, us, "contract"), theirs = open(on, them, "contract");
  users_of(us, *mine);
  REQUIRE(acquire(them, *theirs) == errc::ok);
  close(them, *theirs);
  CHECK(acquire(us, *mine) == errc::unproven);
  CHECK(users_of(us, *mine).lock == Lock::none);
  CHECK(acquire(us, *mine) == errc::ok);
  close(us, *mine);
}

void release(ContractCluster& on) {
  on.create("contract", true);
  auto& us = on.ours();
  const Opened image = open(on, us, "contract");
  REQUIRE(acquire(us, *image) == errc::ok);
  REQUIRE(us.run(image->release_lock(us.in(30s))));
  CHECK(users_of(us, *image).lock == Lock::none);
  // It does not hold this lock.
  CHECK_FALSE(us.run(image->release_lock(us.in(30s))));
  CHECK_FALSE(us.run(image->keep_lock(us.in(30s))));
  close(us, *image);
}

void reader(ContractCluster& on) {
  on.create("contract", true);
  auto &us = on.ours(), &them = on.other();
  const Opened writes = open(on, us, "contract"), reads = open(on, them, "contract", to_read());
  CHECK(reads->read_only());
  CHECK(users_of(us, *writes).foreign_watchers.empty());
  CHECK(users_of(them, *reads).foreign_watchers == std::vector{writes->client()});
  close(them, *reads);
  close(us, *writes);
}

void stranger(ContractCluster& on) {
  on.create("contract", true);
  auto& us = on.ours();
  const Opened image = open(on, us, "contract");
  const auto stranger = on.opened_by_stranger("contract");
  CHECK(users_of(us, *image).foreign_watchers.size() == 1);
  stranger->take_lock();
  const auto seen = users_of(us, *image);
  CHECK(seen.lock == Lock::other);
  CHECK(seen.foreign_watchers == std::vector{seen.owner});
  CHECK(acquire(us, *image) == errc::in_use);
  stranger->close();
  CHECK(users_of(us, *image).foreign_watchers.empty());
  CHECK(acquire(us, *image) == errc::ok);
  close(us, *image);
}

void by_hand(ContractCluster& on) {
  on.create("contract-by-hand", true);
  on.lock_by_hand("contract-by-hand");
  auto& us = on.ours();
  const Opened image = open(on, us, "contract-by-hand");
  const auto seen = us.run(image->ownership(us.in(30s)));
  REQUIRE_FALSE(seen);
  CHECK(seen.error().code == errc::in_use);
  CHECK(acquire(us, *image) == errc::in_use);
  close(us, *image);
}

void versions(ContractCluster& on) {
  on.create("contract", true);
  auto &us = on.ours(), &them = on.other();
  const auto key = resolve(on, us, "contract").key;
  const Opened image = open(on, us, "contract");
  const auto fresh = users_of(us, *image).version;
  CHECK(header(on, us, key).version == fresh);
  const Opened watches = open(on, them, "contract");
  CHECK(header(on, us, key).version == fresh);
  REQUIRE(acquire(us, *image) == errc::ok);
  const auto locked = header(on, us, key).version;
  CHECK(locked > fresh);
  REQUIRE(us.run(image->set_metadata("contract/name", "value", us.in(30s))));
  const auto noted = header(on, us, key).version;
  CHECK(noted > locked);
  close(them, *watches);
  CHECK(users_of(us, *image).version == noted);
  close(us, *image);
  CHECK(header(on, us, key).version > noted);
}

void dead_agent(ContractCluster& on) {
  on.create("contract", true);
  on.agent_dies("contract");
  auto& us = on.ours();
  const auto key = resolve(on, us, "contract").key;
  const Opened image = open(on, us, "contract");
  const auto seen = users_of(us, *image);
  CHECK(seen.lock == Lock::our_dead);
  CHECK_FALSE(seen.owner.empty());
  CHECK(seen.owner != image->client());
  CHECK(seen.foreign_watchers.empty());
  const auto cut_off = blocklist(on, us);
  CHECK(cut_off.find(seen.owner) != nullptr);
  CHECK(acquire(us, *image) == errc::in_use);
  REQUIRE(break_lock(us, *image, seen.owner) == errc::ok);
  const auto broken = header(on, us, key);
  CHECK(broken.break_time == kBreakTime);
  CHECK(broken.version > seen.version);
  CHECK(users_of(us, *image).lock == Lock::none);
  CHECK(users_of(us, *image).version == broken.version);
  CHECK(break_lock(us, *image, seen.owner) == errc::unproven);
  REQUIRE(acquire(us, *image) == errc::ok);
  CHECK(header(on, us, key).break_time != kBreakTime);
  CHECK(header(on, us, key).version > broken.version);
  close(us, *image);
}

void opening_after_a_break(ContractCluster& on) {
  on.create("contract", true);
  on.agent_dies("contract");
  auto &us = on.ours(), &them = on.other();
  const auto key = resolve(on, us, "contract").key;
  const Opened image = open(on, us, "contract");
  REQUIRE(break_lock(us, *image, users_of(us, *image).owner) == errc::ok);
  const auto broken = header(on, us, key);
  const Opened reads = open(on, them, "contract", to_read());
  CHECK(header(on, us, key).break_time == broken.break_time);
  const Opened watches = open(on, them, "contract");
  CHECK(header(on, us, key).break_time != broken.break_time);
  CHECK(header(on, us, key).version == broken.version);
  for (image::Image* one : {reads.get(), watches.get()}) close(them, *one);
  close(us, *image);
}

void foreign_lock(ContractCluster& on) {
  on.create("contract", true);
  auto &us = on.ours(), &them = on.other();
  const Opened mine = open(on, us, "contract"), theirs = open(on, them, "contract");
  REQUIRE(acquire(them, *theirs) == errc::ok);
  const auto owner = users_of(us, *mine).owner;
  block(on, us, owner);
  const auto seen = users_of(us, *mine);
  CHECK(seen.lock == Lock::other);
  CHECK(seen.owner == owner);
  REQUIRE(break_lock(us, *mine, owner) == errc::ok);
  CHECK(acquire(us, *mine) == errc::ok);
  static_cast<void>(them.run(theirs->close(them.in(30s))));
  CHECK(users_of(us, *mine).lock == Lock::mine);
  close(us, *mine);
}

void cut_off(ContractCluster& on) {
  on.create("contract", true);
  auto &us = on.ours(), &them = on.other();
  int told = 0;
  image::OpenOptions options;
  options.on_lost = [&](const std::string&) { ++told; };
  const Opened image = open(on, us, "contract", options);
  REQUIRE(acquire(us, *image) == errc::ok);
  const std::string before = image->client();
  block(on, them, before);
  // The cluster's OSDs refuse it once they have the map that says so.
  errc code = errc::ok;
  for (int tries = 0; tries < 60 && code == errc::ok; ++tries) {
    const auto seen = us.run(image->ownership(us.in(30s)));
    code = seen ? errc::ok : seen.error().code;
    if (code == errc::ok) us.drive([] { return false; }, 500ms);
  }
  CHECK(code == errc::fenced);
  CHECK(us.drive([&] { return told > 0; }, 60s));
  const auto key = image->key();
  CHECK(try_open(on, us, key).error().code == errc::unavailable);
  REQUIRE(us.run(us.clusters().fence_dead(on.access(), us.in(30s))));
  close(us, *image);
  const Opened again = open(on, us, "contract");
  CHECK(again->client() != before);
  const auto seen = users_of(us, *again);
  CHECK(seen.lock == Lock::our_dead);
  CHECK(seen.owner == before);
  CHECK(seen.foreign_watchers.empty());
  REQUIRE(break_lock(us, *again, before) == errc::ok);
  CHECK(acquire(us, *again) == errc::ok);
  close(us, *again);
  CHECK(told == 1);
}

/// The lock and its watch stay, so the image has a name of its own.
void kept_lock(ContractCluster& on) {
  on.create("contract-kept", true);
  auto &us = on.ours(), &them = on.other();
  const Opened mine = open(on, us, "contract-kept");
  REQUIRE(acquire(us, *mine) == errc::ok);
  const std::string before = mine->client();
  REQUIRE(us.run(mine->keep_lock(us.in(30s))));
  REQUIRE(us.run(mine->keep_lock(us.in(30s))));
  close(us, *mine);
  const Opened theirs = open(on, them, "contract-kept");
  auto seen = users_of(them, *theirs);
  CHECK(seen.lock == Lock::other);
  CHECK(seen.owner == before);
  CHECK(seen.foreign_watchers == std::vector{before});
  CHECK(acquire(them, *theirs) == errc::in_use);
  close(them, *theirs);
}

void kept_lock_taken_back(ContractCluster& on) {
  on.create("contract-taken-back", true);
  auto& us = on.ours();
  const Opened before = open(on, us, "contract-taken-back");
  REQUIRE(acquire(us, *before) == errc::ok);
  REQUIRE(us.run(before->keep_lock(us.in(30s))));
  const Opened again = open(on, us, "contract-taken-back");
  CHECK(break_lock(us, *again, before->client()) == errc::unavailable);
  CHECK(acquire(us, *again) != errc::ok);
  close(us, *before);
  const auto seen = users_of(us, *again);
  CHECK(seen.lock == Lock::our_dead);
  CHECK(seen.owner == again->client());
  CHECK(seen.foreign_watchers.empty());
  REQUIRE(break_lock(us, *again, seen.owner) == errc::ok);
  CHECK(acquire(us, *again) == errc::ok);
  CHECK(users_of(us, *again).lock == Lock::mine);
  // A lock that librbd holds is not broken.
  CHECK(break_lock(us, *again, seen.owner) == errc::unproven);
  close(us, *again);
}

void blocklist_entries(ContractCluster& on) {
  auto &us = on.ours(), &them = on.other();
  // Use the network of examples. The port of a client is 0.
  const std::string short_one = "192.0.2.1:0/77", long_one = "192.0.2.2:0/78";
  block(on, us, short_one, 1h);
  block(on, us, long_one, 48h);
  const auto first = blocklist(on, them);
  REQUIRE(first.find(short_one) != nullptr);
  REQUIRE(first.find(long_one) != nullptr);
  CHECK(first.find(long_one)->until - first.find(short_one)->until > 46h);
  CHECK(first.find("192.0.2.3:0/79") == nullptr);
  // Monitors do not shorten an entry, and this agent lengthens none before its end.
  block(on, us, long_one, 1h);
  CHECK(blocklist(on, them).find(long_one)->until - first.find(long_one)->until < 5s);
  CHECK(first.find(long_one)->until - blocklist(on, them).find(long_one)->until < 5s);
}

// --- the mark of an image without exclusive-lock

void hears(ContractCluster& on) {
  on.create("contract", true);
  auto& us = on.ours();
  const Opened image = open(on, us, "contract");
  for (const std::uint64_t at : {std::uint64_t{0}, image->size() - 1}) {
    const auto heard = us.run(image->hearing({at, 1}, us.in(60s)));
    REQUIRE(heard);
    CHECK(*heard == image::Hearing::as_others);
  }
}

void marks(ContractCluster& on) {
  on.create("contract-plain", false);
  auto &us = on.ours(), &them = on.other();
  const Opened mine = open(on, us, "contract-plain"), theirs = open(on, them, "contract-plain");
  CHECK_FALSE(mine->exclusive_lock());
  CHECK(users_of(them, *theirs).writer.empty());
  REQUIRE(users_of(us, *mine).writer.empty());
  REQUIRE(acquire(us, *mine) == errc::ok);
  CHECK(users_of(us, *mine).marked);
  CHECK(users_of(us, *mine).writer.empty());
  const auto seen = users_of(them, *theirs);
  CHECK(seen.writer == mine->client());
  CHECK(seen.writer_signed);
  CHECK(seen.lock == Lock::none);
  close(us, *mine);
  CHECK(users_of(them, *theirs).writer.empty());
  close(them, *theirs);
}

void late_mark(ContractCluster& on) {
  on.create("contract-plain", false);
  auto &us = on.ours(), &them = on.other();
  const Opened late = open(on, us, "contract-plain"), next = open(on, them, "contract-plain");
  static_cast<void>(users_of(us, *late));
  static_cast<void>(users_of(them, *next));
  REQUIRE(acquire(them, *next) == errc::ok);
  CHECK(acquire(us, *late) == errc::in_use);
  CHECK(users_of(us, *late).writer == next->client());
  close(us, *late);
  CHECK(users_of(them, *next).marked);
  close(them, *next);
}

// --- metadata, data, size

void entries(ContractCluster& on) {
  on.create("contract", true);
  const bool reads = GENERATE(false, true);
  CAPTURE(reads);
  auto& us = on.ours();
  const Opened image = open(on, us, "contract", reads ? to_read() : image::OpenOptions());
  CHECK_FALSE(metadata(us, *image, "contract/a"));
  REQUIRE(us.run(image->set_metadata("contract/a", "1", us.in(30s))));
  REQUIRE(us.run(image->set_metadata("contract/b", "2", us.in(30s))));
  REQUIRE(us.run(image->set_metadata("contract/b", "3", us.in(30s))));
  REQUIRE(us.run(image->set_metadata("contracts", "4", us.in(30s))));
  CHECK(metadata(us, *image, "contract/b") == "3");
  const auto below = us.run(image->metadata_below("contract/", us.in(30s)));
  REQUIRE(below);
  CHECK(*below == std::map<std::string, std::string>{{"contract/a", "1"}, {"contract/b", "3"}});
  REQUIRE(us.run(image->remove_metadata("contract/a", us.in(30s))));
  REQUIRE(us.run(image->remove_metadata("contract/a", us.in(30s))));
  CHECK_FALSE(metadata(us, *image, "contract/a"));
  close(us, *image);
}

void data(ContractCluster& on) {
  on.create("contract", true);
  auto& us = on.ours();
  const auto has_data = [&](image::Image& image) {
    const auto found = us.run(image.has_data(us.in(60s)));
    REQUIRE(found);
    return *found;
  };
  const Opened image = open(on, us, "contract");
  CHECK_FALSE(has_data(*image));
  const auto stranger = on.opened_by_stranger("contract");
  stranger->write();
  CHECK(has_data(*image));
  stranger->close();
  close(us, *image);
}

void sizes(ContractCluster& on) {
  on.create("contract", true);
  auto& us = on.ours();
  int told = 0;
  image::OpenOptions options;
  options.on_resized = [&] { ++told; };
  const Opened image = open(on, us, "contract", options);
  const auto before = image->size();
  CHECK(before == resolve(on, us, "contract").size);
  on.resize("contract", 2 * before);
  CHECK(us.drive([&] { return image->size() == 2 * before; }, 30s));
  CHECK(told == 1);
  CHECK(us.run(image->refresh(us.in(30s))));
  CHECK(image->size() == 2 * before);
  CHECK(told == 1);
  close(us, *image);
}

void stamps(ContractCluster& on) {
  on.create("contract", true);
  auto& us = on.ours();
  const Opened image = open(on, us, "contract");
  const auto before = users_of(us, *image).modified;
  REQUIRE(before);
  const auto stamped = us.run(image->stamp(us.in(30s)));
  REQUIRE(stamped);
  REQUIRE(*stamped);
  CHECK(**stamped > *before);
  CHECK(users_of(us, *image).modified == *stamped);
  close(us, *image);
}

// --- refusals

void unsafe(ContractCluster& on) {
  on.create("contract", true);
  auto& us = on.ours();
  const auto key = resolve(on, us, "contract").key;
  REQUIRE(us.run(us.clusters().fence_dead(on.access(), us.in(30s))));
  on.cache_by_metadata("contract");
  CHECK(try_open(on, us, key).error().code == errc::unsafe_config);
}

void dirty(ContractCluster& on) {
  on.create("contract", true);
  on.set_dirty_cache("contract", true);
  auto& us = on.ours();
  const auto found = resolve(on, us, "contract");
  CHECK((found.features.bits & image::kDirtyCache) != 0);
  REQUIRE(us.run(us.clusters().fence_dead(on.access(), us.in(30s))));
  auto options = GENERATE(false, true) ? to_read() : image::OpenOptions();
  CHECK(try_open(on, us, found.key, options).error().code == errc::unsafe_config);
  options.despite_dirty_cache = true;
  const Opened seen = open(on, us, "contract", options);
  CHECK((users_of(us, *seen).features.bits & image::kDirtyCache) != 0);
  on.set_dirty_cache("contract", false);
  CHECK((users_of(us, *seen).features.bits & image::kDirtyCache) == 0);
  close(us, *seen);
}

struct Check {
  const char* sentence;
  void (*holds)(ContractCluster&);
};

constexpr Check kChecks[] = {
    {"what does not exist is not found, and whom the cluster refuses is unauthenticated", &names},
    {"a name leads to an identity, a size and the features that the header has", &looks},
    {"an image made again under the same name is another one, and the first is not found", &made_again},
    {"a node sees another node's lock and watch, does not get the lock, and gets it once the image is closed",
     &lock_of_another_node},
    {"a lock is not taken if another client had it since the image was looked at", &lock_after_another},
    {"a lock that is not held can be neither released nor kept", &release},
    {"a reader has no watch", &reader},
    {"a stranger's watch and lock are seen, its lock is not taken, and both end with its close", &stranger},
    {"a lock made by hand is neither looked behind nor taken", &by_hand},
    {"the header's version rises with its lock and metadata, and not with a watch", &versions},
    {"a dead agent's lock is known as ours, waits for a break, and leaves the break's mark until it is taken",
     &dead_agent},
    {"who opens an image to write wipes the mark of a break, and a reader does not", &opening_after_a_break},
    {"the lock of another node's client that is cut off can be broken", &foreign_lock},
    {"a client that is cut off is told once, and replaced by one that knows its lock", &cut_off},
    {"a client that gets answers is not deaf", &hears},
    {"a kept lock outlives its image, and another node cannot take it", &kept_lock},
    {"a client that kept a lock and opens the image again breaks it and takes it", &kept_lock_taken_back},
    {"an entry of the blocklist keeps its end when a shorter one is added", &blocklist_entries},
    {"without exclusive-lock the writer's mark is seen, and goes when the image is closed", &marks},
    {"a mark that comes after another client's replaces nothing", &late_mark},
    {"metadata are written, listed by prefix and removed twice through an image open to read or to write", &entries},
    {"an image without data is empty until somebody writes", &data},
    {"a resize by another client is told once", &sizes},
    {"a stamp is the image's time of change from then on", &stamps},
    {"an image that would acknowledge before storing is refused", &unsafe},
    {"an image whose newest writes are in another client's cache is refused, but for a look", &dirty},
};

}  // namespace

void check_cluster_contract(const std::function<std::unique_ptr<ContractCluster>()>& make) {
  for (const auto& check : kChecks) DYNAMIC_SECTION(check.sentence) {
      const auto cluster = make();
      check.holds(*cluster);
    }
}

}  // namespace corbd::test
