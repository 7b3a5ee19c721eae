// The filesystem in a stage.
#include <algorithm>

#include "corbd/plan/outcome.hpp"
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

TEST_CASE("a stage grows a filesystem that is smaller than its device, unless the filesystem is read-only") {
  Model model = staged_model();
  model.record->stagings.front().complete = false;
  model.seen.devices.front().size = kTwo;
  SECTION("writable") {
    const auto steps = run(model, Wish(staged_wish()));
    REQUIRE(steps);
    CHECK(*steps == std::vector<Step>{step::Look{Fact::stash}, step::WriteStash{kPath, {}},
                                      step::Look{Fact::filesystem, kTarget}, step::Grow{kTarget},
                                      step::Look{Fact::format_marker}, step::WriteRecord{}});
  }
  SECTION("read-only") {
    model.seen.mounts.front().filesystem_read_only = true;
    const auto steps = run(model, Wish(staged_wish()));
    REQUIRE(steps);
    CHECK(*steps == std::vector<Step>{step::Look{Fact::stash}, step::WriteStash{kPath, {}},
                                      step::Look{Fact::format_marker}, step::WriteRecord{}});
  }
}

TEST_CASE(
    "mkfsOptions that reach beyond the volume are refused before a format, and hinder no filesystem that is there") {
  Model model = fresh();
  model.image_has_filesystem = GENERATE(false, true);
  model.image_has_data = model.image_has_filesystem;
  auto wish = staged_wish();
  wish.source.mkfs_options = "-d /run/corbd/keys";
  Decision last = Done{};
  const auto steps = run(model, Wish(wish), &last);
  REQUIRE(steps);
  CHECK(std::ranges::find(*steps, Step(step::Mkfs{})) == steps->end());
  CHECK(failure(last) == (model.image_has_filesystem ? errc::ok : errc::invalid_argument));
  if (!model.image_has_filesystem) CHECK(std::get<Refusal>(last).error.text.starts_with("volume " + kId));
}

TEST_CASE("a mount option that names another device is refused before anything is done, unless the volume is mounted") {
  auto wish = staged_wish();
  wish.capability.mount_flags = "noatime,logdev=/dev/nbd7";
  const auto refused = fresh().decide(Wish(wish));
  CHECK(failure(refused) == errc::invalid_argument);
  CHECK(std::get<Refusal>(refused).error.text.starts_with("volume " + kId));
  CHECK(std::holds_alternative<Done>(staged_model().decide(Wish(wish))));
}

namespace {

/// A volume that is not mounted, with a filesystem that has errors.
Model damaged() {
  Model model = fresh();
  model.image_has_filesystem = model.image_has_data = true;
  model.filesystem_bytes = kTwo;
  model.damage = "two errors";
  return model;
}

Staged damaged_wish(OnDamage policy) {
  auto wish = staged_wish();
  wish.source.on_damage = policy;
  return wish;
}

std::string text_of_refusal(const Decision& last) {
  const auto* refused = std::get_if<Refusal>(&last);
  return refused == nullptr ? "" : refused->error.text;
}

Published pod_wish(bool read_only) {
  Published wish;
  wish.path = kPath;
  wish.target = "/t";
  wish.read_only = read_only;
  wish.capability = staged_wish().capability;
  return wish;
}

}  // namespace

TEST_CASE("with corbd/on-damage refuse a damaged filesystem is not mounted, and the text has the command",
          "[failure:47]") {
  Model model = damaged();
  Decision last = Done{};
  const auto steps = run(model, Wish(damaged_wish(OnDamage::refuse)), &last);
  REQUIRE(steps);
  CHECK(failure(last) == errc::failed_precondition);
  CHECK(model.seen.mounts.empty());
  CHECK_FALSE(model.record->damaged);
  CHECK_THAT(text_of_refusal(last), ContainsSubstring("two errors") && ContainsSubstring("corbd/on-damage") &&
                                        ContainsSubstring("`e2fsck -f \"$(rbd-nbd map pool/image)\"`"));
}

TEST_CASE("with corbd/on-damage read-only a damaged filesystem is mounted on a device that takes no write",
          "[failure:47]") {
  const bool encrypted = GENERATE(false, true);
  Model model = damaged();
  if (encrypted) {
    model.kms_id = "default";
    model.luks = true;
    model.slots = {0};
    model.encryption = "encrypted";
  }
  Decision last = Done{};
  const auto wish = damaged_wish(OnDamage::read_only);
  REQUIRE(run(model, Wish(wish), &last));
  CHECK(std::holds_alternative<Done>(last));
  CHECK(model.record->damaged);
  REQUIRE(model.seen.mounts.size() == 1);
  CHECK(model.seen.devices.front().read_only);
  CHECK(text_of_damage(*model.record, "x").find(encrypted ? "open its LUKS header" : "rbd-nbd map pool/image") !=
        std::string::npos);
  model.seen.facts = {};
  SECTION("a repeated stage changes nothing") {
    const auto steps = run(model, Wish(wish), &last);
    REQUIRE(steps);
    CHECK(steps->empty());
  }
  SECTION("a pod that may write does not get it, and one that only reads does") {
    REQUIRE(run(model, Wish(pod_wish(false)), &last));
    CHECK(failure(last) == errc::failed_precondition);
    CHECK_THAT(text_of_refusal(last), ContainsSubstring("readOnly") && ContainsSubstring("e2fsck -f"));
    REQUIRE(run(model, Wish(pod_wish(true)), &last));
    CHECK(std::holds_alternative<Done>(last));
  }
  SECTION("it neither grows nor is trimmed") {
    model.seen.devices.front().size = model.cluster_bytes = 2 * kTwo;
    const auto grown = run(model, Wish(Expanded{kPath}), &last);
    REQUIRE(grown);
    CHECK(std::ranges::count(*grown, Step(step::Grow{kTarget})) == 0);
    REQUIRE(run(model, Wish(Trimmed{kPath}), &last));
    CHECK(failure(last) == errc::failed_precondition);
  }
  SECTION("a heal leaves its device read-only") {
    model.seen.devices.front().read_only = false;
    REQUIRE(run(model, Wish(Healed{}), &last));
    CHECK(model.seen.devices.front().read_only);
  }
  SECTION("once it is repaired, the next stage mounts it writable") {
    model.seen.mounts.clear();
    model.damage.clear();
    REQUIRE(run(model, Wish(wish), &last));
    CHECK(std::holds_alternative<Done>(last));
    CHECK_FALSE(model.record->damaged);
    CHECK_FALSE(model.seen.devices.front().read_only);
    if (encrypted) CHECK_FALSE(model.seen.devices.front().holders.front().read_only);
  }
  SECTION("a stage that comes again with fsck, before the mount, repairs it") {
    model.seen.mounts.clear();
    REQUIRE(run(model, Wish(damaged_wish(OnDamage::fsck)), &last));
    CHECK(std::holds_alternative<Done>(last));
    CHECK(model.damage.empty());
    CHECK_FALSE(model.record->reads_only());
    CHECK_FALSE(model.seen.devices.front().read_only);
  }
  SECTION("an unstage leaves the number writable") {
    model.seen.mounts.clear();
    const auto steps = run(model, Wish(Unstaged{kPath}), &last);
    REQUIRE(steps);
    const auto tuned = std::ranges::find(*steps, Step(step::Tune{}));
    CHECK(tuned < std::ranges::find(*steps, Step(step::Disconnect{})));
  }
}

TEST_CASE("a stage that did not end is checked by the word of the request that comes next", "[failure:47]") {
  Model model = damaged();
  model.damage.clear();
  Decision last = Done{};
  REQUIRE(run(model, Wish(staged_wish()), &last));
  model.record->stagings.front().complete = false;
  model.seen.mounts.clear();
  model.seen.facts = {};
  model.damage = "two errors";
  REQUIRE(run(model, Wish(damaged_wish(OnDamage::refuse)), &last));
  CHECK(failure(last) == errc::failed_precondition);
  CHECK(model.seen.mounts.empty());
  CHECK(model.damage == "two errors");
}

TEST_CASE("with corbd/on-damage read-only a filesystem without damage is mounted as any other") {
  Model model = damaged();
  model.damage.clear();
  Decision last = Done{};
  REQUIRE(run(model, Wish(damaged_wish(OnDamage::read_only)), &last));
  CHECK(std::holds_alternative<Done>(last));
  CHECK_FALSE(model.seen.devices.front().read_only);
}

TEST_CASE("the kernel client's device stays writable, so a damaged filesystem on it is refused by both words") {
  const auto policy = GENERATE(OnDamage::refuse, OnDamage::read_only);
  Model model = damaged();
  auto wish = damaged_wish(policy);
  wish.mounter = Mounter::krbd;
  Decision last = Done{};
  REQUIRE(run(model, Wish(wish), &last));
  CHECK(failure(last) == errc::failed_precondition);
  CHECK(model.seen.mounts.empty());
}
