// The planner as a table, and as a property over random states (I7).
#include <algorithm>
#include <random>

#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

/// Encrypts a third of the volumes, and leaves the encryption in a random state.
void encrypt(Model& model, std::mt19937& random) {
  if (!model.record || random() % 3 != 0) return;
  const auto flip = [&] { return random() % 2 == 0; };
  if (!model.record->use.block && flip()) {
    using enum host::EncryptedFolder;
    model.record->encryption = Encryption{FilesKms{"default"}};
    model.folder = std::array{none, plain, locked, unlocked}.at(random() % 4);
    return;
  }
  model.record->encryption = Encryption{DeviceKms{"default"}};
  model.encryption = std::array{"", "encryptionPrepared", "encrypted", "other"}.at(random() % 4);
  model.luks = flip();
  if (model.luks) model.image_has_data = true;
  if (model.luks && flip()) model.slots = {0};
  if (!model.seen.devices.empty() && model.luks) {
    auto& holders = model.seen.devices.front().holders;
    if (flip()) holders.push_back(inner_mapping());
    if (flip()) holders.push_back(mapping());
  }
  model.keys.first = {flip(), false};
  model.keys.second = {flip(), false};
  if (model.keys.first.used) model.keys.first.opens = flip();
  if (model.keys.second.used) model.keys.second.opens = flip();
  if (!model.keys.first.opens) model.keys.second = {true, true};
}

}  // namespace

TEST_CASE(
    "a fresh stage resolves the name, takes the lock, connects a device, proves the image empty, formats it and mounts "
    "it, in this order",
    "[rule:I2]") {
  Model model = fresh();
  const auto steps = run(model, Wish(staged_wish()));
  REQUIRE(steps);
  CHECK(*steps ==
        sequence({permitted(), connected(), {step::Look{Fact::probe}}, proven_empty(), {step::Mkfs{}}, mounted()}));
  CHECK(model.record->stagings.front().complete);
}

TEST_CASE("a stage or heal of a volume that is staged and served is done at once") {
  for (const Wish& wish : {Wish(staged_wish()), Wish(Healed{})})
    CHECK(std::holds_alternative<Done>(staged_model().decide(wish)));
}

TEST_CASE(
    "a repeated stage or publish matches its record even if a new default mounter reads its map options differently") {
  Model model = staged_model();
  const bool was = GENERATE(true, false);
  model.record->use.read_only = model.record->stagings.front().capability.read_only = was;
  model.seen.devices.front().read_only = was;
  Staged staged = staged_wish();
  staged.capability.read_only = !was;
  Published published{kPath, "/target", false, staged.capability};
  CHECK(failure(model.decide(Wish(staged))) == errc::already_exists);
  CHECK(failure(model.decide(Wish(published))) == errc::failed_precondition);
  staged.read_only_otherwise = published.read_only_otherwise = was;
  CHECK(std::holds_alternative<Done>(model.decide(Wish(staged))));
  CHECK(run(model, Wish(published)));
  CHECK(model.record->publishes.size() == 1);
  staged.path = "/staging-2";
  const auto second = model.decide(Wish(staged));
  REQUIRE(std::holds_alternative<Step>(second));
  CHECK(std::get<step::WriteRecord>(std::get<Step>(second)).record.stagings.back().capability.read_only == was);
}

TEST_CASE(
    "an unstage also removes the staging mount's propagated copy, and is refused if any other mount of the device is "
    "left") {
  Model model = staged_model();
  host::Mount& mount = model.seen.mounts.front();
  mount.id = 1;
  mount.place = {8, 1, "/kubelet/staging/image-1", 5, 0};
  host::Mount twin = mount;
  twin.id = 2;
  twin.target = "/data" + mount.target;
  SECTION("a copy goes with the staging mount, which is synced as the last mount of its filesystem") {
    twin.place = GENERATE(host::Place{8, 1, "/kubelet/staging/image-1", 5, 0},
                          host::Place{8, 1, "/kubelet/staging/image-1", 0, 5});
    model.seen.mounts.push_back(twin);
    const auto steps = run(model, Wish(Unstaged{kPath}));
    REQUIRE(steps);
    CHECK(std::holds_alternative<step::Umount>(steps->front()));
    CHECK(std::holds_alternative<step::DropRecord>(steps->back()));
    CHECK(model.seen.mounts.empty());
  }
  SECTION("a mount of another peer group, folder or filesystem is no copy, and the error names its path") {
    twin.place =
        GENERATE(host::Place{8, 1, "/kubelet/staging/image-1", 6, 0},
                 host::Place{8, 1, "/kubelet/staging/image-1", 0, 0}, host::Place{8, 1, "/kubelet/pods/p/mount", 5, 0},
                 host::Place{8, 2, "/kubelet/staging/image-1", 5, 0}, host::Place{});
    model.seen.mounts.push_back(twin);
    const auto decision = model.decide(Wish(Unstaged{kPath}));
    REQUIRE(failure(decision) == errc::failed_precondition);
    CHECK(std::get<Refusal>(decision).error.text.find("umount " + twin.target) != std::string::npos);
  }
}

TEST_CASE("while an earlier agent's helper works on a served device, an unstage waits and a heal does not",
          "[rule:I1]") {
  Model model = staged_model();
  model.seen.busy = true;
  CHECK(std::holds_alternative<Wait>(model.decide(Wish(Unstaged{kPath}))));
  CHECK(std::holds_alternative<Done>(model.decide(Wish(Healed{}))));
}

TEST_CASE("an unstage unmounts, disconnects the device, closes the image, and drops stash and record, in this order") {
  Model model = staged_model();
  model.stash.emplace();
  const auto steps = run(model, Wish(Unstaged{kPath}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Umount{kTarget}, step::WriteRecord{}, step::Look{Fact::unused},
                                    step::Disconnect{}, step::StopSession{}, step::CloseImage{},
                                    step::Look{Fact::stash}, step::DropStash{kPath}, step::DropRecord{}});
}

TEST_CASE("an unstage disconnects a device only once, then waits until no program has it open") {
  Model model = staged_model();
  model.open = true;
  Decision last;
  const auto steps = run(model, Wish(Unstaged{kPath}), &last);
  REQUIRE(steps);
  CHECK(std::ranges::count(*steps, Step(step::Disconnect{})) == 1);
  const auto* wait = std::get_if<Wait>(&last);
  REQUIRE(wait != nullptr);
  CHECK(wait->why.find("fuser -v /dev/nbd3") != std::string::npos);
  model.seen.devices.clear();
  REQUIRE(run(model, Wish(Unstaged{kPath}), &last));
  CHECK(std::holds_alternative<Done>(last));
}

TEST_CASE("a mounted device that another program disconnected cannot be healed, but is unmounted without a link") {
  Model model = staged_model();
  model.cut = true;
  model.seen.link = Observation::Link::closed;
  model.seen.connected = false;
  Model unstaged = model;
  Decision last;
  REQUIRE(run(model, Wish(Healed{}), &last));
  CHECK(failure(last) == errc::unavailable);
  REQUIRE(run(unstaged, Wish(Unstaged{kPath}), &last));
  CHECK(std::holds_alternative<Done>(last));
  CHECK_FALSE(unstaged.record);
}

TEST_CASE("a device that device-mapper holds is not disconnected", "[rule:8]") {
  Model model = staged_model();
  model.seen.devices.front().holders.push_back({.name = "dm-0", .mapping = "vg-data"});
  Decision last;
  const auto steps = run(model, Wish(Unstaged{kPath}), &last);
  REQUIRE(steps);
  CHECK(failure(last) == errc::in_use);
  CHECK(std::ranges::count(*steps, Step(step::Disconnect{})) == 0);
  CHECK(model.seen.devices.size() == 1);
}

TEST_CASE("a device that something of the host has claimed is neither formatted nor mounted, and its name is told",
          "[failure:244]") {
  struct Row {
    std::vector<device::UpperDevice> holders;
    const char* way;
  };
  const auto row = GENERATE(
      Row{{{.name = "dm-0", .mapping = "mpatha", .maker = device::Maker::multipath}}, "`multipath -f mpatha`"},
      Row{{{.name = "dm-0", .mapping = "vault", .maker = device::Maker::crypt}}, "`cryptsetup close vault`"},
      Row{{{.name = "dm-0", .mapping = "cow"}}, "`dmsetup remove cow`"},
      Row{{{.name = "md127", .mapping = ""}}, "`mdadm --stop /dev/md127`"},
      Row{{{.name = "bcache0", .mapping = ""}}, "used by bcache0: close that"},
      Row{{{.name = "md127", .mapping = ""}, {.name = "dm-1", .mapping = "vg-data", .maker = device::Maker::lvm}},
          "`vgchange -an vg`"});
  for (const bool encrypted : {false, true}) {
    CAPTURE(row.way, encrypted);
    Model model = staged_model();
    model.seen.mounts.clear();
    if (encrypted) model.record->encryption = Encryption{DeviceKms{"default"}};
    model.seen.devices.front().holders = row.holders;
    Decision last;
    const auto steps = run(model, Wish(staged_wish()), &last);
    REQUIRE(steps);
    CHECK(failure(last) == errc::in_use);
    CHECK_THAT(std::get<Refusal>(last).error.text, ContainsSubstring(row.way));
    CHECK(std::ranges::none_of(*steps, [](const Step& step) {
      return std::holds_alternative<step::Mkfs>(step) || std::holds_alternative<step::LuksOpen>(step) ||
             std::holds_alternative<step::LuksFormat>(step) || std::holds_alternative<step::Mount>(step);
    }));
  }
}

TEST_CASE("an unstage or unpublish without a record clears its path once, and fails if another volume has that path") {
  Model model = fresh();
  for (const Wish& wish : {Wish(Unstaged{kPath}), Wish(Unpublished{"/target"})}) {
    Model one = model;
    const auto steps = run(one, wish);
    REQUIRE(steps);
    const auto takes_mount = [](const Step& step) {
      return std::holds_alternative<step::Umount>(step) || std::holds_alternative<step::Unbind>(step);
    };
    CHECK(std::ranges::count_if(*steps, takes_mount) == 1);
    one = model;
    one.seen.path_owner = "image-2";
    CHECK(failure(one.decide(wish)) == errc::failed_precondition);
  }
}

TEST_CASE("a new device does not inherit the unfinished format of the previous one") {
  Model model = fresh();
  model.record = some_record(Phase::staging);
  model.record->device.index = 3;
  model.record->format = Format{model.marker = "mkfs by 10.0.0.1:0/1"};
  model.image_has_data = true;
  Decision last;
  REQUIRE(run(model, Wish(staged_wish()), &last));
  CHECK(failure(last) == errc::not_empty);
}

TEST_CASE("from any state every wish ends within 40 steps, at a fixed point, and no rule is broken on the way",
          "[rule:I1][rule:I7]") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(range(0, 4000)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto flip = [&] { return random() % 2 == 0; };
  Model model = fresh();
  if (random() % 4 != 0) {
    model.record = some_record(static_cast<Phase>(random() % 3));
    model.exclusive_lock = flip();
    if (flip()) model.record->device.boot_id = "earlier";
    if (flip()) model.record->publishes.push_back({"/target", kPath, flip()});
  }
  if (flip()) {
    model.seen.devices.push_back(device_seen(3));
    if (model.record && flip()) model.record->device.index = 3;
    if (flip()) model.seen.mounts.push_back(mount_of(model.seen.devices.front(), kPath + "/" + kId));
    if (flip()) model.seen.mounts.push_back(mount_of(model.seen.devices.front(), "/target"));
  }
  if (flip()) {
    host::Mount foreign;
    foreign.target = flip() ? "/target" : kPath + "/" + kId;
    foreign.dev_major = 8;
    if (model.seen.mounts.empty()) model.seen.mounts.push_back(foreign);
  }
  model.seen.image_open = flip();
  model.seen.lock_held = model.seen.image_open && flip();
  model.seen.exclusive_lock = model.exclusive_lock;
  if (model.seen.image_open) model.seen.link = static_cast<Observation::Link>(random() % 4);
  model.seen.connected = !model.seen.devices.empty() && model.seen.link == Observation::Link::serving && flip();
  if (!model.seen.devices.empty() && !model.seen.connected && model.seen.link == Observation::Link::serving &&
      !model.record)
    model.seen.link = Observation::Link::none;
  model.seen.key_known = random() % 4 != 0;
  if (model.seen.image_open && flip()) model.seen.image_size = 1 << 30;
  model.seen.other_credential = model.seen.image_open && flip();
  model.seen.credential_kept = flip();
  model.image_has_data = flip();
  model.image_has_filesystem = model.image_has_data && flip();
  if (flip()) model.marker = "mkfs by 10.0.0.1:0/1";
  if (model.record && flip()) model.record->format = Format{"mkfs by 10.0.0.1:0/1"};
  if (model.record && random() % 4 == 0 && model.record->format) model.record->format->version = 0;
  if (model.record) model.record->proof.operator_override = random() % 4 == 0;
  if (model.record && flip()) model.record->proof.attachment_uid = "uid-1";
  model.attachment = {static_cast<Attachment::State>(random() % 4), flip() ? "uid-1" : "uid-2", ""};
  model.ownership.lock = static_cast<Lock>(random() % 4);
  if (model.record) model.record->provisioned = flip();
  model.policy.fencing = flip();
  model.other_serves = random() % 4 == 0;
  if (flip()) model.stash = Stash{"pool", "", "image", "", flip(), false, flip() ? "/dev/nbd3" : "", "", ""};
  if (random() % 4 == 0) {
    model.ownership.foreign_watchers.push_back("10.0.0.2:0/5");
    Holder& holder = model.holders.emplace_back(Holder{.address = "10.0.0.2:0/5", .watches = true});
    holder.blocked = random() % 4 == 0;
    holder.node.state = static_cast<HolderNode::State>(random() % 5);
    if (flip()) holder.node.attached = flip();
    model.policy.fence_out_of_service = flip();
  }
  Staged staged = staged_wish();
  if (random() % 3 == 0) {
    staged.mounter = Mounter::krbd;
    if (model.record) model.record->device.kind = device::Kind::krbd;
    for (auto& device : model.seen.devices) {
      device.kind = device::Kind::krbd;
      device.backend.clear();
    }
    model.seen.link = Observation::Link::none;
    model.seen.connected = model.seen.lock_held = false;
  }
  Published published;
  published.path = kPath;
  published.target = "/target";
  if (flip()) published.pod_uid = "uid";
  if (flip()) model.io_limits.write_iops = 100;
  model.takes_limits = flip();
  model.cluster_bytes = flip() ? kTwo : 0;
  model.filesystem_bytes = flip() ? 1 << 20 : 1 << 30;
  if (flip())
    for (auto& mount : model.seen.mounts) mount.filesystem_read_only = true;
  const Expanded expanded{flip() ? kPath : "/target", flip() ? kTwo : 0};
  const std::array wishes{Wish(staged),
                          Wish(Unstaged{kPath}),
                          Wish(published),
                          Wish(Unpublished{"/target"}),
                          Wish(Healed{.operator_override = flip(), .silent = seed % 2 == 0}),
                          Wish(Adopted{}),
                          Wish(GivenUp{}),
                          Wish(expanded),
                          Wish(Trimmed{expanded.path}),
                          Wish(Rekeyed{}),
                          Wish(Attached{flip() ? "uid-1" : "uid-3"}),
                          Wish(Authorized{}),
                          Wish(Frozen{"freeze-1", {}}),
                          Wish(Thawed{})};
  static_assert(std::tuple_size_v<decltype(wishes)> == std::variant_size_v<Wish>, "a wish without this property");
  const Wish& wish = wishes.at(random() % wishes.size());
  encrypt(model, random);
  model.open = random() % 4 == 0;
  model.cut = !model.seen.devices.empty() && !model.seen.connected && !model.other_serves && random() % 4 == 0;
  Decision last;
  REQUIRE(run(model, wish, &last));
  if (std::holds_alternative<Done>(last)) CHECK(std::holds_alternative<Done>(model.decide(wish)));
}

TEST_CASE("a client that leaves requests unanswered is given up once its volume has another user and key") {
  Model model = staged_model();
  model.user_refused = model.secret_differs = true;
  const auto steps = run(model, Wish(Healed{.silent = true}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Look{Fact::client_user}, step::Look{Fact::stage_secret},
                                    step::TryCredential{}, step::GiveUpClient{}});
}

TEST_CASE("a client that leaves requests unanswered is kept") {
  Model model = staged_model();
  std::vector<Step> expected{step::Look{Fact::client_user}};
  SECTION("as long as the cluster lets its user in") { model.seen.other_credential = true; }
  model.user_refused = expected.size() == 1 && !model.seen.other_credential;
  SECTION("while its volume's Secret has no other user and key") {
    expected.emplace_back(step::Look{Fact::stage_secret});
  }
  SECTION("while it serves a volume that gets answers, and that no other user can serve") {
    model.seen.other_credential = model.seen.client_needed = true;
  }
  const auto steps = run(model, Wish(Healed{.silent = true}));
  REQUIRE(steps);
  CHECK(*steps == expected);
}

TEST_CASE("a user of a later stage that the cluster refuses too is no reason not to look into the Secret") {
  Model model = staged_model();
  model.user_refused = model.seen.other_credential = model.seen.facts.other_refused = true;
  const auto steps = run(model, Wish(Healed{.silent = true}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Look{Fact::client_user}, step::Look{Fact::stage_secret}});
}

TEST_CASE("if an image does not close in time, the planner asks whether to give its client up") {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.connected = false;
  model.seen.image_open = model.seen.image_closing = true;
  const auto next = [&] { return std::get<Step>(model.decide(Wish(Healed{}))); };
  CHECK(next() == Step(step::Look{Fact::client_user}));
  model.seen.facts.user_refused = model.seen.facts.secret_asked = true;
  CHECK(next() == Step(step::GiveUpClient{}));
  SECTION("but not if the cluster lets its user in and answers others no better") {
    model.seen.facts.user_refused = false;
  }
  SECTION("but once in an operation") { model.seen.facts.client_judged = true; }
  SECTION("but not if it was given up") { model.seen.client_given_up = true; }
  SECTION("but not as long as it serves another volume") { model.seen.client_needed = true; }
  SECTION("but not for a volume that was given up") { model.record->failed = true; }
  CHECK(next() == Step(step::CloseImage{}));
}

TEST_CASE("a client that hears less than another one of its user is given up, whatever else it serves") {
  Model model = staged_model();
  model.seen.facts.user_refused = false;
  model.seen.facts.client_deaf = true;
  model.seen.client_needed = GENERATE(false, true);
  SECTION("if its image does not close in time") {
    model.seen.link = Observation::Link::none;
    model.seen.connected = false;
    model.seen.image_open = model.seen.image_closing = true;
    CHECK(std::get<Step>(model.decide(Wish(Healed{}))) == Step(step::GiveUpClient{}));
  }
  SECTION("if it serves and is silent") {
    model.seen.silent = true;
    CHECK(std::get<Step>(model.decide(Wish(Healed{.silent = true}))) == Step(step::GiveUpClient{}));
  }
}

TEST_CASE("if the operations of an ended session go on, the planner asks whether to give its client up") {
  Model model = staged_model();
  model.seen.link = Observation::Link::closed;
  model.seen.connected = false;
  const auto next = [&] { return std::get<Step>(model.decide(Wish(Healed{}))); };
  CHECK(next() == Step(step::StopSession{}));
  model.seen.session_stuck = true;
  CHECK(next() == Step(step::Look{Fact::client_user}));
}

TEST_CASE("a client that answers is changed once the cluster has taken its volume's other user and key") {
  Model model = staged_model();
  model.seen.lock_held = true;
  model.seen.other_credential = true;
  SECTION("and it is on the disk") {
    model.seen.credential_kept = true;
    const auto steps = run(model, Wish(Healed{}));
    REQUIRE(steps);
    REQUIRE(steps->size() > 2);
    CHECK(steps->at(0) == Step(step::OpenNext{}));
    CHECK(steps->at(1) == Step(step::ChangeClient{}));
  }
  SECTION("and not before") { CHECK(std::holds_alternative<Done>(model.decide(Wish(Healed{})))); }
  SECTION("and not if that user cannot open the image") {
    model.seen.credential_kept = true;
    model.seen.facts.next_tried = true;
    model.seen.facts.next_refused = Error{errc::permission_denied, "no caps"};
    CHECK(std::holds_alternative<Done>(model.decide(Wish(Healed{}))));
  }
}

TEST_CASE("a client that answers is kept") {
  Model model = staged_model();
  model.seen.lock_held = model.seen.other_credential = model.seen.credential_kept = true;
  SECTION("if it was changed in this operation, or could not be") { model.seen.facts.client_changed = true; }
  SECTION("if nothing shows that the image is ours") { model.seen.lock_held = false; }
  SECTION("if its user is the volume's") { model.seen.other_credential = false; }
  SECTION("if a request waits for the cluster") { model.seen.silent = true; }
  const auto steps = run(model, Wish(Healed{}));
  REQUIRE(steps);
  CHECK(steps->empty());
}

TEST_CASE(
    "a repeated stage of a served volume asks the cluster about a user and key that it has not seen, and no more") {
  Model model = staged_model();
  model.seen.credential_untried = true;
  const auto steps = run(model, staged_wish());
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::OpenNext{}, step::TryCredential{}});
}
