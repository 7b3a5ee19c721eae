#include "locks.hpp"

#include <sstream>

#include "support/catch.hpp"

using namespace corbd;
using rbd::Incarnation;
using rbd::Locker;
using Lock = image::Ownership::Lock;

namespace {

// This agent: one serving incarnation, another live one, one dead and one fenced.
const image::Key kImage{"f", 1, "", "1018aa17d94d", 0};

rbd::Incarnations agent() {
  rbd::Incarnations all;
  all.add({Incarnation::State::live, "serving", "f", "lab", {"10.0.0.1:0/1"}, 0});
  all.add({Incarnation::State::live, "second", "f", "lab", {"10.0.0.1:0/2"}, 0});
  all.add({Incarnation::State::dead, "dead", "f", "lab", {"10.0.0.1:0/3"}, 0});
  all.add({Incarnation::State::fenced, "fenced", "f", "lab", {"10.0.0.1:0/4"}, 1});
  return all;
}

result<image::Ownership> seen(std::vector<Locker> lockers, std::vector<std::string> watchers = {}) {
  std::vector<rbd::Watcher> all;
  for (auto& address : watchers) all.push_back({std::move(address), "client.2"});
  return rbd::classify(lockers, all, kImage, "serving", agent());
}

Locker at(std::string address) { return {"client.1", "auto 1", std::move(address)}; }

}  // namespace

TEST_CASE("a lock is classified by its owner's address") {
  CHECK(seen({})->lock == Lock::none);
  CHECK(seen({at("10.0.0.1:0/1")})->lock == Lock::mine);
  CHECK(seen({at("10.0.0.1:0/3")})->lock == Lock::our_dead);
  CHECK(seen({at("10.0.0.1:0/4")})->lock == Lock::our_dead);
  CHECK(seen({at("10.0.0.2:0/1")})->lock == Lock::other);
}

TEST_CASE("a lock that somebody made by hand is told from those of clients that write") {
  CHECK_FALSE(rbd::is_by_hand("auto 140653669402400", "internal", true));
  CHECK_FALSE(rbd::is_by_hand(rbd::kept_cookie(18446462598732840961u), "internal", true));
  CHECK(rbd::is_by_hand("maintenance", "", true));
  CHECK(rbd::is_by_hand("auto 1", "", true));
  CHECK(rbd::is_by_hand("kubelet_lock_magic_n1", "internal", true));
}

TEST_CASE("a lock that somebody made by hand does not keep an image without exclusive-lock from being taken") {
  CHECK_FALSE(rbd::is_by_hand("kubelet_lock_magic_n1", "", false));
}

TEST_CASE("a lock made by hand whose texts mean something to a shell gets into no command") {
  struct Row {
    const char *client, *cookie, *image;
  };
  const auto row = GENERATE(Row{"client.7", "a'; reboot '", "rbd/a"}, Row{"client.7", "a\nb", "rbd/a"},
                            Row{"client.7", "", "rbd/a"}, Row{"client.7", "--help", "rbd/a"},
                            Row{"$(reboot)", "a", "rbd/a"}, Row{"client.7", "a", "rbd/a;reboot"});
  const auto refused = rbd::locked_by_hand({{row.client, row.cookie, "10.0.0.2:0/1", true}}, row.image);
  REQUIRE(refused);
  CHECK_THAT(refused->text, ContainsSubstring("`rbd lock ls`") && !ContainsSubstring("rbd lock remove"));
  CHECK(refused->text.find('\n') == std::string::npos);
}

TEST_CASE("the refusal of a lock that was made by hand names it and the command that removes it") {
  CHECK_FALSE(rbd::locked_by_hand({at("10.0.0.2:0/1")}, "rbd/a"));
  const auto refused = rbd::locked_by_hand({{"client.7", "maintenance", "10.0.0.2:0/1", true}}, "rbd/a");
  REQUIRE(refused);
  CHECK(refused->code == errc::in_use);
  CHECK_THAT(refused->text, ContainsSubstring("rbd lock remove rbd/a 'maintenance' client.7"));
}

TEST_CASE("the owner's address is given as Ceph prints it") {
  CHECK(seen({at("10.0.0.1:0/4")})->owner == "10.0.0.1:0/4");
}

TEST_CASE("of several owners a foreign one counts, in any order") {
  CHECK(seen({at("10.0.0.1:0/4"), at("10.0.0.2:0/1")})->owner == "10.0.0.2:0/1");
  CHECK(seen({at("10.0.0.2:0/1"), at("10.0.0.1:0/4")})->lock == Lock::other);
}

TEST_CASE("a lock of another live connection of this agent makes the caller wait") {
  const auto found = seen({at("10.0.0.1:0/2")});
  REQUIRE_FALSE(found);
  CHECK(found.error().code == errc::unavailable);
}

TEST_CASE("a predecessor's lock counts as a dead client's once the predecessor has closed the image") {
  auto known = agent();
  known.add({Incarnation::State::yields, "before", "f", "lab", {"10.0.0.1:0/5"}, 0});
  const std::vector<Locker> lockers{at("10.0.0.1:0/5")};
  const auto open = rbd::classify(lockers, {{"10.0.0.1:0/5", "client.5"}}, kImage, "serving", known);
  REQUIRE_FALSE(open);
  CHECK(open.error().code == errc::unavailable);
  const auto closed = rbd::classify(lockers, {}, kImage, "serving", known);
  REQUIRE(closed);
  CHECK(closed->lock == Lock::our_dead);
}

TEST_CASE("the watch that a predecessor's kept lock names does not count as an open image", "[failure:154]") {
  auto known = agent();
  known.add({Incarnation::State::yields, "before", "f", "lab", {"10.0.0.1:0/5"}, 0});
  const std::vector<Locker> kept{{"client.5", rbd::kept_cookie(7), "10.0.0.1:0/5"}};
  const std::vector<rbd::Watcher> closed{{"10.0.0.1:0/5", "client.5", 7}}, open{{"10.0.0.1:0/5", "client.5", 6}};
  const auto found = rbd::classify(kept, closed, kImage, "serving", known);
  REQUIRE(found);
  CHECK(found->lock == Lock::our_dead);
  CHECK(found->foreign_watchers.empty());
  CHECK_FALSE(rbd::classify(kept, open, kImage, "serving", known));
  CHECK_FALSE(rbd::classify({{"client.5", "auto 7", "10.0.0.1:0/5"}}, closed, kImage, "serving", known));
  CHECK_FALSE(rbd::classify({}, closed, kImage, "serving", known));
}

TEST_CASE(
    "a lock that another client of this agent left counts as a dead client's, until that client takes the image "
    "again") {
  auto known = agent();
  const std::vector<Locker> kept{{"client.2", rbd::kept_cookie(7), "10.0.0.1:0/2"}};
  const std::vector<rbd::Watcher> watches{{"10.0.0.1:0/2", "client.2", 7}};
  CHECK_FALSE(rbd::classify(kept, watches, kImage, "serving", known));
  known.note_opened("second", kImage.text());
  known.note_closed("second", kImage.text(), true);
  const auto left = rbd::classify(kept, watches, kImage, "serving", known);
  REQUIRE(left);
  CHECK(left->lock == Lock::our_dead);
  CHECK(left->foreign_watchers.empty());
  CHECK_FALSE(rbd::classify(kept, watches, {"f", 2, "", "1018aa17d94d", 0}, "serving", known));
  known.note_taken("second", kImage.text());
  CHECK_FALSE(rbd::classify(kept, watches, kImage, "serving", known));
}

TEST_CASE("a lock that this client kept counts as a dead client's once it has the image open again", "[failure:150]") {
  const auto found = seen({{"client.1", rbd::kept_cookie(7), "10.0.0.1:0/1"}});
  REQUIRE(found);
  CHECK(found->lock == Lock::our_dead);
  CHECK(found->owner == "10.0.0.1:0/1");
}

TEST_CASE("an image that a client has left is its own until its last handle there has closed, however late that is") {
  auto known = agent();
  const std::vector<Locker> kept{{"client.2", rbd::kept_cookie(7), "10.0.0.1:0/2"}};
  known.note_opened("second", kImage.text());
  known.note_opened("second", kImage.text());
  known.note_closed("second", kImage.text(), true);
  CHECK_FALSE(rbd::classify(kept, {}, kImage, "serving", known));
  known.note_closed("second", kImage.text(), false);
  CHECK(rbd::classify(kept, {}, kImage, "serving", known));
}

TEST_CASE("what a client has left stays left when that client has ended") {
  auto known = agent();
  known.note_closed("second", kImage.text(), true);
  known.replace("second", {Incarnation::State::fenced, "second", "f", "lab", {"10.0.0.1:0/2"}, 1});
  const auto* ended = known.find("f", "10.0.0.1:0/2");
  REQUIRE(ended != nullptr);
  CHECK(ended->state == Incarnation::State::fenced);
  CHECK(ended->has_left(kImage.text()));
}

TEST_CASE("librbd reads the handle of the watch from the cookie of a kept lock") {
  // managed_lock/Utils.cc of Ceph: decode_lock_cookie().
  std::istringstream cookie(rbd::kept_cookie(140653669402400));
  std::string prefix;
  std::uint64_t handle = 0;
  REQUIRE(cookie >> prefix >> handle);
  CHECK(prefix == "auto");
  CHECK(handle == 140653669402400);
}

TEST_CASE("a client that watches an image twice is one watcher") {
  CHECK(seen({}, {"10.0.0.9:0/1", "10.0.0.9:0/1"})->foreign_watchers == std::vector<std::string>{"10.0.0.9:0/1"});
}

TEST_CASE("watchers of this agent, dead or alive, are not foreign") {
  const auto found = seen({}, {"10.0.0.1:0/1", "10.0.0.1:0/2", "10.0.0.1:0/3", "10.0.0.1:0/4", "10.0.0.9:0/1"});
  CHECK(found->foreign_watchers == std::vector<std::string>{"10.0.0.9:0/1"});
}

namespace {

std::vector<Locker> locked_by(const std::string& address, const std::string& cookie) {
  return {{"client.1", cookie, address}};
}
const std::vector<std::string> kMine{"10.0.0.1:0/1"};
constexpr std::chrono::seconds kShort{60};

}  // namespace

TEST_CASE("a lock of ours with the same cookie is still held, however long we were away") {
  CHECK(rbd::still_held("auto 1", std::chrono::hours(5), locked_by(kMine.front(), "auto 1"), kMine));
}

TEST_CASE(
    "a lock of ours with the cookie of a new watch is still held, if we were not away for longer than a blocklisting "
    "lasts",
    "[failure:44]") {
  CHECK(rbd::still_held("auto 1", kShort, locked_by(kMine.front(), "auto 2"), kMine));
  CHECK_FALSE(rbd::still_held("auto 1", rbd::longest_absence, locked_by(kMine.front(), "auto 2"), kMine));
}

TEST_CASE("our lock counts as lost once it is free, another client's or shared") {
  CHECK_FALSE(rbd::still_held("auto 1", kShort, {}, kMine));
  CHECK_FALSE(rbd::still_held("auto 1", kShort, locked_by("10.0.0.2:0/5", "auto 1"), kMine));
  auto two = locked_by(kMine.front(), "auto 1");
  two.push_back({"client.2", "auto 1", "10.0.0.2:0/5"});
  CHECK_FALSE(rbd::still_held("auto 1", kShort, two, kMine));
}

TEST_CASE("foreign lock owners and watchers are reported with their client numbers") {
  const auto found = seen({at("10.0.0.7:0/1")}, {"10.0.0.1:0/1", "10.0.0.8:0/1"});
  CHECK(found->clients ==
        std::map<std::string, std::string>{{"10.0.0.7:0/1", "client.1"}, {"10.0.0.8:0/1", "client.2"}});
}

TEST_CASE("a lock's owner counts as silent if it has no watch or keeps the lock for the next agent") {
  const std::vector<Locker> lockers{at("10.0.0.2:0/5")};
  const std::vector<rbd::Watcher> stranger{{"10.0.0.3:0/6", "client.6"}}, owner{{"10.0.0.2:0/5", "client.5"}};
  CHECK(rbd::silent_owners(lockers, stranger, {"10.0.0.1:0/1"}) == std::vector<std::string>{"10.0.0.2:0/5"});
  CHECK(rbd::silent_owners(lockers, owner, {"10.0.0.1:0/1"}).empty());
  CHECK(rbd::silent_owners(lockers, stranger, {"10.0.0.2:0/5"}).empty());
  CHECK(rbd::silent_owners({}, stranger, {}).empty());
  const std::vector<Locker> kept{{"client.5", rbd::kept_cookie(7), "10.0.0.2:0/5"}};
  CHECK(rbd::silent_owners(kept, owner, {"10.0.0.1:0/1"}).size() == 1);
  CHECK(rbd::silent_owners(kept, owner, {"10.0.0.2:0/5"}).size() == 1);
}

TEST_CASE("of librbd's notifications those for the lock's owner stay unanswered while the lock is kept",
          "[failure:154]") {
  // As NotifyMessage encodes it: version, oldest version, length, operation.
  const auto notification = [](int operation) {
    return std::string{7, 1, 4, 0, 0, 0} + std::string{static_cast<char>(operation), 0, 0, 0};
  };
  for (const int news : {0, 1, 3, 4, 5, 18, 19}) CHECK_FALSE(rbd::asks_owner(notification(news)));
  for (const int request : {2, 6, 7, 8, 17, 20}) CHECK(rbd::asks_owner(notification(request)));
  CHECK_FALSE(rbd::asks_owner(""));
  CHECK_FALSE(rbd::asks_owner(notification(2).substr(0, 9)));
}
