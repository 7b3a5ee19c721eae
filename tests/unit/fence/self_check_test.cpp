// What keeps a fenced node out, and what only leaves it in doubt.
#include "corbd/fence/self_check.hpp"

#include "support/catch.hpp"

using namespace corbd;
using fence::Cause;
using fence::Verdict;
using image::AddressBlock;
using image::BlocklistEntry;

namespace {

BlocklistEntry range(const char* block) {
  auto entry = image::entry_of_range(AddressBlock::parse(block).value());
  entry.until = std::chrono::system_clock::time_point(std::chrono::hours(500000));
  return entry;
}

/// The node has 10.0.0.7, and everything of it has ended.
fence::CheckFacts clean_facts(const BlocklistEntry& entry = range("10.0.0.7/32")) {
  fence::CheckFacts facts;
  facts.clients.known = {"10.0.0.7:0/5"};
  facts.now = {"fsid", {entry, image::entry_of_client("10.0.0.7:0/5").value()}, {"10.0.0.7:0/9"}};
  facts.before = facts.now;
  return facts;
}

fence::NodeWriters::Volume volume(bool given_up, bool in_use, const char* fsid = "fsid") {
  return {"volume-1", fsid, "/dev/nbd0", given_up, in_use};
}

fence::NodeWriters::Device shown(const char* path, const char* volume = "", const char* fsid = "") {
  return {path, volume, fsid};
}

/// The verdict on the one fence, and the causes.
std::pair<Verdict, std::vector<Cause>> judged(const fence::CheckFacts& facts) {
  const auto fences = fence::self_check(facts);
  REQUIRE(fences.size() == 1);
  std::vector<Cause> causes;
  for (const auto& reason : fences.front().reasons) causes.push_back(reason.cause);
  return {fences.front().verdict(), causes};
}

}  // namespace

TEST_CASE("a fenced node of which nothing is left may be let in again") {
  CHECK(judged(clean_facts()) == std::pair(Verdict::clean, std::vector<Cause>()));
  auto host = image::entry_of_host(AddressBlock::parse("10.0.0.7/32").value());
  CHECK(judged(clean_facts(host)).first == Verdict::clean);
}

TEST_CASE("whatever may still write keeps its node fenced", "[failure:142]") {
  struct Row {
    const char* what;
    void (*change)(fence::CheckFacts& facts);
    Verdict verdict;
    std::vector<Cause> causes;
  };
  const Row rows[] = {
      {"a volume that is served or waits",
       [](auto& facts) { facts.node.volumes = {volume(false, false)}; },
       Verdict::unclean,
       {Cause::not_given_up}},
      {"a given up volume that is mounted",
       [](auto& facts) { facts.node.volumes = {volume(true, true)}; },
       Verdict::unclean,
       {Cause::still_used}},
      {"a given up volume that nobody uses",
       [](auto& facts) { facts.node.volumes = {volume(true, false)}; },
       Verdict::clean,
       {}},
      {"a volume of another cluster",
       [](auto& facts) { facts.node.volumes = {volume(false, true, "other")}; },
       Verdict::clean,
       {}},
      {"the device of a given up volume",
       [](auto& facts) {
         facts.node.volumes = {volume(true, false)};
         facts.node.devices = {shown("/dev/nbd0", "volume-1")};
       },
       Verdict::clean,
       {}},
      {"a device whose volume has no record",
       [](auto& facts) { facts.node.devices = {shown("/dev/nbd1", "volume-2")}; },
       Verdict::unclean,
       {Cause::device}},
      {"another program's device",
       [](auto& facts) { facts.node.devices = {shown("/dev/nbd1")}; },
       Verdict::unclean,
       {Cause::device}},
      {"a device of the kernel's client",
       [](auto& facts) { facts.node.devices = {shown("/dev/rbd0", "", "fsid")}; },
       Verdict::unclean,
       {Cause::device}},
      {"the kernel's device in another cluster",
       [](auto& facts) { facts.node.devices = {shown("/dev/rbd0", "", "other")}; },
       Verdict::clean,
       {}},
      {"another program",
       [](auto& facts) { facts.node.programs = {"rbd-nbd, process 7"}; },
       Verdict::unclean,
       {Cause::program}},
      {"a CephFS", [](auto& facts) { facts.node.cephfs = true; }, Verdict::unclean, {Cause::cephfs}},
      {"bytes that the kernel still sends",
       [](auto& facts) { facts.node.unsent = {"10.0.0.7:40000 to 10.0.0.1:6801"}; },
       Verdict::unclean,
       {Cause::unsent}},
      {"an own client that lives",
       [](auto& facts) { facts.clients.left = {"10.0.0.7:0/6"}; },
       Verdict::unclean,
       {Cause::own_client}},
      {"an own client at an address that is not fenced",
       [](auto& facts) { facts.clients.left = {"10.1.0.7:0/6"}; },
       Verdict::clean,
       {}},
      {"a dead client whose entry ends early",
       [](auto& facts) { facts.clients.ending_early = {"10.0.0.7:0/5"}; },
       Verdict::unclean,
       {Cause::ending_early}},
      {"a dead client whose entry somebody removed",
       [](auto& facts) { facts.now.entries.pop_back(); },
       Verdict::unclean,
       {Cause::ending_early}},
      {"a client that ended well, without an entry",
       [](auto& facts) {
         facts.now.entries.pop_back();
         facts.clients.ended_well = {"10.0.0.7:0/5"};
       },
       Verdict::clean,
       {}},
      {"a dead client without an entry, at an address that is not fenced",
       [](auto& facts) { facts.clients.known.push_back("10.1.0.7:0/5"); },
       Verdict::clean,
       {}},
      {"something that could not be looked at",
       [](auto& facts) { facts.node.unseen = {"the processes"}; },
       Verdict::unknown,
       {Cause::unseen}},
      {"a fence that was not there before",
       [](auto& facts) { facts.before.entries.clear(); },
       Verdict::unknown,
       {Cause::made_anew}},
      {"a fence with another end than before",
       [](auto& facts) { facts.before.entries.front().until += std::chrono::seconds(1); },
       Verdict::unknown,
       {Cause::made_anew}},
      {"no client that ever wrote from there",
       [](auto& facts) { facts.clients.known.clear(); },
       Verdict::unknown,
       {Cause::never_here}},
      {"what may write outranks what is not known",
       [](auto& facts) {
         facts.node.cephfs = true;
         facts.node.unseen = {"the processes"};
       },
       Verdict::unclean,
       {Cause::cephfs, Cause::unseen}},
  };
  for (const auto& row : rows) {
    INFO(row.what);
    auto facts = clean_facts();
    row.change(facts);
    CHECK(judged(facts) == std::pair(row.verdict, row.causes));
  }
}

TEST_CASE("a node speaks for no other address of a wider fence") {
  CHECK(judged(clean_facts(range("10.0.0.0/24"))) == std::pair(Verdict::unknown, std::vector{Cause::wider}));
}

TEST_CASE("a fence that covers no client of this node is not judged") {
  CHECK(fence::self_check(clean_facts(range("10.0.0.8/32"))).empty());
}

TEST_CASE("each fence of an address is judged by itself") {
  auto facts = clean_facts();
  facts.now.entries.push_back(range("10.0.0.0/24"));
  facts.before = facts.now;
  const auto fences = fence::self_check(facts);
  REQUIRE(fences.size() == 2);
  CHECK(fences.front().verdict() == Verdict::clean);
  CHECK(fences.back().verdict() == Verdict::unknown);
}
