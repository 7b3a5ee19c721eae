// The planner as a table, and as a property over random states (I7).
#include "corbd/volume/planner.hpp"

#include <algorithm>
#include <random>

#include "corbd/core/failpoint.hpp"
#include "plan_krbd.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::volume;

namespace {

const std::string kId = "image-1";
const std::string kPath = "/staging";
constexpr std::uint64_t kTwo = 2ull << 30;  ///< bytes
const Policy kPolicy{.driver = "rbd.csi.ceph.com", .node = "node-1"};
using Kind = Step::Kind;
using Lock = image::Ownership::Lock;

/// A node with one volume, on which steps have the effect that the ports promise.
struct Model {
  std::optional<Record> record;
  Observation seen;
  bool image_has_filesystem = false;
  bool image_has_data = false;
  bool marker = false;
  std::uint64_t filesystem_bytes = 0, cluster_bytes = 0;
  image::Ownership ownership;
  bool other_serves = false;
  std::string kms_id;      ///< by its journal
  std::string encryption;  ///< the image's metadata
  bool luks = false;       ///< it has a header; what is on the image is then below that
  std::vector<int> slots;
  Keys keys;
  std::optional<Stash> stash;
  std::optional<Note> metadata;
  Policy policy = kPolicy;

  Decision decide(const Wish& wish) const { return plan(kId, record, wish, seen, policy); }
  void apply(const Step& step, const Wish& wish);
  void look(Fact fact);
  /// I1: a step that uses a device needs a live link, or the kernel's client.
  bool answers() const {
    const bool by_kernel = seen.device() != nullptr && seen.device()->kind == device::Kind::krbd;
    return other_serves || by_kernel || (seen.link == Observation::Link::serving && seen.attached);
  }
};

device::Seen device_seen(std::uint32_t index) {
  device::Seen seen;
  seen.index = index;
  seen.backend = kId;
  seen.dev_major = 43;
  seen.dev_minor = index * 32;
  seen.io_timeout_ms = 30000;
  return seen;
}

device::Holder mapping() { return {"dm-0", mapping_name(kId), 1 << 29, 253, 0}; }

host::Mount mount_of(const device::Seen& device, const std::string& target) {
  host::Mount mount;
  mount.dev_major = device.dev_major;
  mount.dev_minor = device.dev_minor;
  mount.target = target;
  mount.fstype = "ext4";
  return mount;
}

void Model::look(Fact fact) {
  Facts& facts = seen.facts;
  switch (fact) {
    case Fact::resolved: facts.resolved = image::Resolved{{"fsid", 1, "", "id-1", 0}, 1 << 30, true, 0, "", {}, kms_id}; break;
    case Fact::header: facts.header = image::Header{}; break;
    case Fact::ownership: facts.ownership = ownership; break;
    case Fact::probe:
      facts.probe = host::Probe{image_has_filesystem ? host::Probe::Kind::filesystem : host::Probe::Kind::nothing, "ext4"};
      break;
    case Fact::has_data: facts.has_data = image_has_data; break;
    case Fact::format_marker: facts.format_marker = marker; break;
    case Fact::image_size:
      seen.image_size = std::max(seen.image_size, cluster_bytes);
      facts.image_size_asked = true;
      break;
    case Fact::filesystem: facts.filesystem = host::Extent{filesystem_bytes, 4096}; break;
    case Fact::unused: facts.unused = true; break;
    case Fact::stash: facts.stash = stash; break;
    case Fact::attachment: facts.attachment = Attachment{}; break;
    case Fact::served_by_other: facts.served_by_other = other_serves; break;
    case Fact::encryption: facts.encryption = encryption; break;
    case Fact::luks:
      facts.luks = host::LuksHeader{host::Probe{host::Probe::Kind::nothing, ""}, slots};
      if (luks) facts.luks->found = {host::Probe::Kind::other, "crypto_LUKS"};
      if (!luks && image_has_filesystem) facts.luks->found = {host::Probe::Kind::filesystem, "ext4"};
      break;
    case Fact::keys: facts.keys = keys; break;
  }
}

void Model::apply(const Step& step, const Wish& wish) {
  switch (step.kind) {
    case Kind::look: return look(step.fact);
    case Kind::write_record: record = step.record; return;
    case Kind::fence: seen.facts.fenced = true; return;
    case Kind::open_image: seen.image_open = true; return;
    case Kind::lock:
      seen.lock_held = true;
      ownership.lock = Lock::mine;
      return;
    case Kind::open_tombstone: seen.image_open = seen.tombstone = true; return;
    case Kind::start_session:
      seen.link = Observation::Link::serving;
      seen.attached = false;
      return;
    case Kind::kernel_connect:
      REQUIRE(seen.devices.empty());
      seen.devices.push_back(device_seen(3));
      seen.attached = true;
      return;
    case Kind::kernel_reconfigure: seen.attached = true; return;
    case Kind::kernel_resize:
      REQUIRE(seen.link == Observation::Link::serving);
      REQUIRE(seen.attached);
      seen.devices.front().size = seen.image_size;
      return;
    case Kind::tune: seen.devices.front().io_timeout_ms = 1000; return;
    case Kind::mark: marker = true; seen.facts.format_marker = true; return;
    case Kind::unmark: marker = false; seen.facts.format_marker = false; return;
    case Kind::mkfs:
      REQUIRE_FALSE(image_has_filesystem);
      REQUIRE(marker);
      image_has_filesystem = image_has_data = true;
      seen.facts.probe.reset();
      seen.facts.checked = true;
      return;
    case Kind::fsck: seen.facts.checked = true; return;
    case Kind::mount:
    case Kind::bind:
      REQUIRE(answers());
      seen.mounts.push_back(mount_of(seen.devices.front(), step.path));
      return;
    case Kind::grow:
      REQUIRE(answers());
      REQUIRE_FALSE(record->read_only);
      REQUIRE(std::ranges::any_of(seen.mounts, [&](const auto& mount) { return mount.target == step.path && !mount.filesystem_read_only; }));
      filesystem_bytes = seen.devices.front().size;
      seen.facts.grown = true;
      return;
    case Kind::trim:
      REQUIRE(answers());
      REQUIRE_FALSE(record->read_only);
      seen.facts.trimmed = true;
      return;
    case Kind::unbind:
    case Kind::umount: std::erase_if(seen.mounts, [&](const auto& mount) { return mount.target == step.path; }); return;
    case Kind::map_krbd:
      REQUIRE(seen.devices.empty());
      seen.devices.push_back(device_seen(3));
      seen.devices.front().kind = device::Kind::krbd;
      seen.facts.ownership.reset();
      return;
    case Kind::unmap_krbd:
    case Kind::disconnect:
      REQUIRE((step.kind == Kind::unmap_krbd) == (seen.devices.front().kind == device::Kind::krbd));
      for (const auto& mount : seen.mounts) REQUIRE_FALSE(shows(mount, seen.devices.front()));
      seen.devices.clear();
      seen.attached = false;
      return;
    case Kind::stop_session:
      seen.link = Observation::Link::none;
      seen.attached = false;
      return;
    case Kind::close_image:
      seen.image_open = seen.lock_held = seen.tombstone = false;
      seen.facts = Facts();
      return;
    case Kind::drop_record: record.reset(); return;
    case Kind::dismiss:
      other_serves = false;
      ownership = {};
      seen.facts.ownership.reset();
      seen.facts.served_by_other.reset();
      seen.facts.dismissed = true;
      return;
    case Kind::write_stash:
      REQUIRE(step.path == kPath);
      seen.facts.stash = stash = step.stash;
      return;
    case Kind::drop_stash:
      REQUIRE(step.path == kPath);
      stash.reset();
      seen.facts.stash.emplace();
      return;
    case Kind::note:
      REQUIRE(seen.image_open);
      metadata = seen.facts.noted = step.note_text;
      return;
    case Kind::inherit:
      REQUIRE_FALSE(other_serves);
      REQUIRE(step.path == ownership.owner);
      ownership.lock = Lock::our_dead;
      seen.facts.ownership.reset();
      seen.facts.fenced.reset();
      return;
    case Kind::luks_format:
      REQUIRE((slots.empty() && marker));
      REQUIRE_FALSE((image_has_filesystem && !luks));
      luks = image_has_data = true;
      image_has_filesystem = false;
      slots = {0};
      seen.facts.luks.reset();
      return;
    case Kind::luks_note: encryption = "encrypted"; seen.facts.encryption = encryption; return;
    case Kind::luks_open:
      REQUIRE_FALSE(slots.empty());
      REQUIRE(answers());
      seen.devices.front().holders.push_back(mapping());
      seen.facts.fits = true;
      return;
    case Kind::luks_resize:
      REQUIRE(mapping_of(seen.devices.front()) != nullptr);
      seen.facts.fits = true;
      return;
    case Kind::luks_close:
      for (const auto& mount : seen.mounts) REQUIRE_FALSE(shows(mount, seen.devices.front()));
      seen.devices.front().holders.clear();
      return;
    case Kind::add_key:
      REQUIRE_FALSE(keys.second.used);
      keys.second = {true, true};
      seen.facts.keys.reset();
      return;
    case Kind::new_key:
      REQUIRE_FALSE(keys.first.used);
      keys = {{true, true}, {true, false}};
      seen.facts.rekeyed = true;
      seen.facts.keys.reset();
      return;
    case Kind::remove_key:
      // What opens with the key that the KMS has stays.
      REQUIRE((step.key_slot == 0 ? keys.second : keys.first).opens);
      (step.key_slot == 0 ? keys.first : keys.second) = {};
      seen.facts.keys.reset();
      return;
  }
  static_cast<void>(wish);
}

Staged staged_wish() {
  Staged wish;
  wish.path = kPath;
  wish.capability.fstype = "ext4";
  return wish;
}

enum class Phase { staging, staged, unstaging };

Record some_record(Phase phase) {
  Record record;
  record.volume_id = kId;
  record.boot_id = "boot";
  record.exclusive_lock = true;
  if (phase != Phase::unstaging) record.stagings.push_back({kPath, staged_wish().capability, phase == Phase::staged});
  return record;
}

Model fresh() {
  Model model;
  model.seen.boot_id = "boot";
  model.seen.key_known = true;
  return model;
}

Model staged_model() {
  Model model = fresh();
  model.record = some_record(Phase::staged);
  model.record->device = 3;
  model.seen.devices.push_back(device_seen(3));
  model.seen.devices.front().io_timeout_ms = 1000;
  model.seen.link = Observation::Link::serving;
  model.seen.attached = model.seen.image_open = model.seen.lock_held = true;
  model.seen.mounts.push_back(mount_of(model.seen.devices.front(), kPath + "/" + kId));
  model.image_has_filesystem = model.image_has_data = true;
  return model;
}

/// The kinds of the steps until Done or Fail; an empty optional when 40 do not get there.
std::optional<std::vector<Kind>> run(Model& model, const Wish& wish, Decision* last = nullptr) {
  std::vector<Kind> kinds;
  for (int i = 0; i <= 40; ++i) {
    const Decision decision = model.decide(wish);
    if (last != nullptr) *last = decision;
    const auto* step = std::get_if<Step>(&decision);
    if (step == nullptr) return kinds;
    kinds.push_back(step->kind);
    model.apply(*step, wish);
  }
  return std::nullopt;
}

errc failure(const Decision& decision) {
  const auto* failed = std::get_if<Fail>(&decision);
  return failed == nullptr ? errc::ok : failed->error.code;
}

}  // namespace

TEST_CASE("a fresh stage goes from the name to a mounted filesystem in this order") {
  Model model = fresh();
  const auto kinds = run(model, Wish(staged_wish()));
  REQUIRE(kinds);
  CHECK(*kinds == std::vector{Kind::look, Kind::write_record, Kind::look, Kind::write_stash, Kind::fence, Kind::open_image, Kind::look, Kind::lock,
                              Kind::start_session, Kind::kernel_connect, Kind::write_stash, Kind::write_record, Kind::tune, Kind::look, Kind::look, Kind::look, Kind::mark,
                              Kind::mkfs, Kind::look, Kind::mount, Kind::look, Kind::unmark, Kind::write_record});
  CHECK(model.record->stagings.front().complete);
}

TEST_CASE("a fresh stage with the kernel's client looks who has the image before and after the map, and leaves no image open") {
  Model model = fresh();
  auto wish = staged_wish();
  wish.mounter = Mounter::krbd;
  const auto kinds = run(model, Wish(wish));
  REQUIRE(kinds);
  CHECK(*kinds == std::vector{Kind::look, Kind::write_record, Kind::look, Kind::write_stash, Kind::fence, Kind::open_image, Kind::look, Kind::map_krbd,
                              Kind::look, Kind::write_record, Kind::look, Kind::look, Kind::look, Kind::mark, Kind::mkfs, Kind::look, Kind::mount, Kind::look, Kind::unmark,
                              Kind::write_record, Kind::close_image});
}

TEST_CASE("the kernel's client is chosen where it is wanted and knows every feature of the image") {
  using device::Kind;
  CHECK(*choose_kind(Mounter::nbd, 0, Error{errc::failed_precondition, "no module"}) == Kind::nbd);
  CHECK(*choose_kind(Mounter::krbd, 5, std::uint64_t{0x1bf}) == Kind::krbd);
  CHECK(*choose_kind(Mounter::krbd_if_able, 69, std::uint64_t{0x1bf}) == Kind::nbd);
  const auto refused = choose_kind(Mounter::krbd, 69 | 1ull << 40, std::uint64_t{0x1bf});
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, ContainsSubstring("journaling, bit 40"));
}

TEST_CASE("a heal fences, opens, proves, locks and reconnects, and touches nothing else") {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.attached = model.seen.image_open = model.seen.lock_held = false;
  model.ownership.lock = Lock::our_dead;
  const auto kinds = run(model, Wish(Healed{}));
  REQUIRE(kinds);
  CHECK(*kinds == std::vector{Kind::fence, Kind::open_image, Kind::look, Kind::write_record, Kind::lock, Kind::start_session, Kind::kernel_reconfigure});
}

TEST_CASE("what is staged and answers is Done at the first look") {
  for (const Wish& wish : {Wish(staged_wish()), Wish(Healed{})}) CHECK(std::holds_alternative<Done>(staged_model().decide(wish)));
}

TEST_CASE("a session whose image lost its connection is stopped before anything else") {
  Model model = staged_model();
  model.seen.link = Observation::Link::held;
  const auto decision = model.decide(Wish(Healed{}));
  REQUIRE(std::holds_alternative<Step>(decision));
  CHECK(std::get<Step>(decision).kind == Kind::stop_session);
}

TEST_CASE("without a key nothing is opened") {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.key_known = false;
  CHECK(failure(model.decide(Wish(Healed{}))) == errc::unavailable);
}

TEST_CASE("a device of another boot or another index than the record's is nobody's to touch") {
  Model other_boot = staged_model();
  other_boot.seen.boot_id = "next";
  CHECK(failure(other_boot.decide(Wish(Healed{}))) == errc::failed_precondition);
  Model other_index = staged_model();
  other_index.record->device = 5;
  CHECK(failure(other_index.decide(Wish(Healed{}))) == errc::failed_precondition);
}

TEST_CASE("while a helper of an earlier start works on a live device, everything but healing waits") {
  Model model = staged_model();
  model.seen.busy = true;
  CHECK(std::holds_alternative<Wait>(model.decide(Wish(Unstaged{kPath}))));
  CHECK(std::holds_alternative<Done>(model.decide(Wish(Healed{}))));
}

TEST_CASE("an unstage takes everything down in this order") {
  Model model = staged_model();
  model.stash.emplace();
  const auto kinds = run(model, Wish(Unstaged{kPath}));
  REQUIRE(kinds);
  CHECK(*kinds == std::vector{Kind::umount, Kind::write_record, Kind::look, Kind::disconnect, Kind::stop_session, Kind::close_image, Kind::look,
                              Kind::drop_stash, Kind::drop_record});
}

TEST_CASE("the stash tells what the attributes say and where the image was found, and of the device as soon as there is one") {
  Model model = fresh();
  Staged wish = staged_wish();
  wish.stash.unmap_options = "force";
  wish.stash.log_dir = "/logs";
  model.record = some_record(Phase::staging);
  model.record->source = {"cluster", "pool", "ns", "image", ""};
  Decision next = model.decide(Wish(wish));
  model.apply(std::get<Step>(next), Wish(wish));
  next = model.decide(Wish(wish));
  CHECK(std::get<Step>(next).stash == Stash{"pool", "ns", "image", "force", true, false, "", "/logs", ""});
  REQUIRE(run(model, Wish(wish)));
  CHECK(model.stash == Stash{"pool", "ns", "image", "force", true, false, "/dev/nbd3", "/logs", ""});
}

TEST_CASE("without a record and a stash a served device is umounted and left, one that nobody serves is not touched") {
  Model model = staged_model();
  model.record.reset();
  model.seen.link = Observation::Link::none;
  model.seen.attached = model.seen.image_open = model.seen.lock_held = false;
  CHECK(std::holds_alternative<Step>(model.decide(Wish(Unstaged{kPath}))));
  Decision last;
  REQUIRE(run(model, Wish(Unstaged{kPath}), &last));
  CHECK(failure(last) == errc::unavailable);
  model.seen.facts = Facts();
  model.other_serves = true;
  REQUIRE(run(model, Wish(Unstaged{kPath}), &last));
  CHECK(std::holds_alternative<Done>(last));
  CHECK(model.seen.mounts.empty());
  CHECK(model.seen.devices.size() == 1);
}

TEST_CASE("what a provisioner made is noted before its device is made, once, and with an address for fencing only") {
  const bool fencing = GENERATE(false, true);
  Policy policy = kPolicy;
  policy.fencing = fencing;
  Model model = fresh();
  model.policy = policy;
  model.seen.client = GENERATE("10.0.0.1:0/7", "[fd00::1]:0/7");
  Staged wish = staged_wish();
  wish.user = "node";
  wish.reserved.emplace();
  const auto kinds = run(model, Wish(wish));
  REQUIRE(kinds);
  CHECK(std::ranges::count(*kinds, Kind::note) == 1);
  CHECK(std::ranges::find(*kinds, Kind::note) < std::ranges::find(*kinds, Kind::kernel_connect));
  const std::string address = model.seen.client.starts_with('[') ? "fd00::1" : "10.0.0.1";
  CHECK(model.metadata == Note{"node", fencing ? address : ""});
  CHECK(model.record->note == model.metadata);
  CHECK(std::holds_alternative<Done>(model.decide(Wish(Healed{}))));
}

TEST_CASE("with another address the note is renewed after the device is served again, and a refusal is no hindrance") {
  Model model = staged_model();
  model.policy.fencing = true;
  model.record->provisioned = true;
  model.record->user = "node";
  model.record->note = Note{"node", "10.0.0.1"};
  model.seen.client = "10.0.0.2:0/9";
  model.seen.attached = false;
  model.seen.facts.note_refused = GENERATE(false, true);
  const auto kinds = run(model, Wish(Healed{}));
  REQUIRE(kinds);
  if (model.seen.facts.note_refused) {
    CHECK(*kinds == std::vector{Kind::kernel_reconfigure});
  } else {
    CHECK(*kinds == std::vector{Kind::kernel_reconfigure, Kind::note, Kind::write_record});
    CHECK(model.record->note == Note{"node", "10.0.0.2"});
  }
}

TEST_CASE("a device that device-mapper holds is not disconnected") {
  Model model = staged_model();
  model.seen.devices.front().holders.push_back({.name = "dm-0", .mapping = "vg-data"});
  Decision last;
  REQUIRE(run(model, Wish(Unstaged{kPath}), &last));
  CHECK(failure(last) == errc::in_use);
}

TEST_CASE("a fresh stage of an encrypted volume proves its image empty before the header, and makes the filesystem on the mapping") {
  Model model = fresh();
  model.kms_id = "default";
  model.filesystem_bytes = mapping().size;
  const auto kinds = run(model, Wish(staged_wish()));
  REQUIRE(kinds);
  CHECK(*kinds == std::vector{Kind::look, Kind::write_record, Kind::look, Kind::write_stash, Kind::fence, Kind::open_image, Kind::look, Kind::lock,
                              Kind::start_session, Kind::kernel_connect, Kind::write_stash, Kind::write_record, Kind::tune, Kind::look, Kind::look,
                              Kind::look, Kind::look, Kind::mark,
                              Kind::luks_format, Kind::look, Kind::luks_note, Kind::luks_open, Kind::look, Kind::mkfs, Kind::look, Kind::mount,
                              Kind::look, Kind::unmark, Kind::write_record});
  CHECK(model.record->kms_id == "default");
  CHECK(model.stash->encrypted);
}

TEST_CASE("an expansion asks for the image's size, enlarges the device, and then the filesystem") {
  Model model = staged_model();
  model.cluster_bytes = kTwo;
  const auto kinds = run(model, Wish(Expanded{kPath, kTwo}));
  REQUIRE(kinds);
  CHECK(*kinds == std::vector{Kind::look, Kind::kernel_resize, Kind::look, Kind::grow});
  CHECK(model.filesystem_bytes == kTwo);
}

TEST_CASE("an expansion of what is large enough asks the cluster nothing and grows nothing") {
  Model model = staged_model();
  model.seen.image_size = model.seen.devices.front().size = model.filesystem_bytes = kTwo;
  const auto kinds = run(model, Wish(Expanded{kPath, kTwo}));
  REQUIRE(kinds);
  CHECK(*kinds == std::vector{Kind::look});
  CHECK(model.seen.facts.filesystem.has_value());
}

TEST_CASE("a rest smaller than a block of the filesystem is not room to grow into") {
  CHECK_FALSE(host::has_room({1 << 20, 4096}, (1 << 20) + 4096));
  CHECK(host::has_room({1 << 20, 4096}, (1 << 20) + 4097));
}

TEST_CASE("an expansion beyond the image's size is out of range") {
  Model model = staged_model();
  model.cluster_bytes = 1 << 30;
  Decision last;
  REQUIRE(run(model, Wish(Expanded{kPath, kTwo}), &last));
  CHECK(failure(last) == errc::out_of_range);
}

TEST_CASE("an expansion of a device without a server is left to healing, and repeated") {
  Model model = staged_model();
  model.seen.link = Observation::Link::closed;
  CHECK(failure(model.decide(Wish(Expanded{kPath, 1}))) == errc::unavailable);
}

TEST_CASE("an expansion finds the volume by every path that it is at, and by no other") {
  Model model = staged_model();
  model.record->publishes.push_back({"/target", kPath, false});
  model.seen.mounts.push_back(mount_of(model.seen.devices.front(), "/kubelet/binds/it"));
  for (const std::string& path : {kPath, kPath + "/" + kId, std::string("/target"), std::string("/kubelet/binds/it")})
    CHECK(failure(model.decide(Wish(Expanded{path, 0}))) == errc::ok);
  CHECK(failure(model.decide(Wish(Expanded{"/elsewhere", 0}))) == errc::not_found);
  CHECK(failure(fresh().decide(Wish(Expanded{kPath, 0}))) == errc::not_found);
}

TEST_CASE("a filesystem that is read-only as wanted is left alone, one that turned so cannot grow") {
  Model model = staged_model();
  model.seen.image_size = model.seen.devices.front().size = kTwo;
  model.seen.mounts.front().filesystem_read_only = true;
  CHECK(failure(model.decide(Wish(Expanded{kPath, kTwo}))) == errc::failed_precondition);
  model.record->stagings.front().capability.mount_flags = "noatime,ro";
  CHECK(std::holds_alternative<Done>(model.decide(Wish(Expanded{kPath, kTwo}))));
}

TEST_CASE("a raw block volume has no filesystem to grow") {
  Model model = staged_model();
  model.record->block = model.record->stagings.front().capability.block = true;
  model.cluster_bytes = kTwo;
  const auto kinds = run(model, Wish(Expanded{kPath, 0}));
  REQUIRE(kinds);
  CHECK(*kinds == std::vector{Kind::look, Kind::kernel_resize});
}

TEST_CASE("a filesystem smaller than its device grows at stage, but not where nobody may write") {
  Model model = staged_model();
  model.record->stagings.front().complete = false;
  model.seen.devices.front().size = kTwo;
  SECTION("writable") {
    const auto kinds = run(model, Wish(staged_wish()));
    REQUIRE(kinds);
    CHECK(*kinds == std::vector{Kind::look, Kind::write_stash, Kind::look, Kind::grow, Kind::look, Kind::write_record});
  }
  SECTION("read-only") {
    model.seen.mounts.front().filesystem_read_only = true;
    const auto kinds = run(model, Wish(staged_wish()));
    REQUIRE(kinds);
    CHECK(*kinds == std::vector{Kind::look, Kind::write_stash, Kind::look, Kind::write_record});
  }
}

TEST_CASE("free space is given back once, by a filesystem that is served and may be written") {
  Model model = staged_model();
  const auto kinds = run(model, Wish(Trimmed{kPath}));
  REQUIRE(kinds);
  CHECK(*kinds == std::vector{Kind::trim});
  CHECK(failure(staged_model().decide(Wish(Trimmed{"/elsewhere"}))) == errc::not_found);
  model = staged_model();
  model.record->block = true;
  CHECK(failure(model.decide(Wish(Trimmed{kPath}))) == errc::unimplemented);
  model = staged_model();
  model.seen.mounts.front().filesystem_read_only = true;
  CHECK(failure(model.decide(Wish(Trimmed{kPath}))) == errc::failed_precondition);
  model = staged_model();
  model.seen.link = Observation::Link::held;
  CHECK(failure(model.decide(Wish(Trimmed{kPath}))) == errc::unavailable);
}

/// A third of the volumes, in any state of their encryption.
void encrypt(Model& model, std::mt19937& random) {
  if (!model.record || random() % 3 != 0) return;
  const auto flip = [&] { return random() % 2 == 0; };
  model.record->kms_id = "default";
  model.encryption = std::array{"", "encryptionPrepared", "encrypted", "other"}.at(random() % 4);
  model.luks = flip();
  if (model.luks) model.image_has_data = true;
  if (model.luks && flip()) model.slots = {0};
  if (!model.seen.devices.empty() && model.luks && flip()) model.seen.devices.front().holders.push_back(mapping());
  model.keys.first = {flip(), false};
  model.keys.second = {flip(), false};
  if (model.keys.first.used) model.keys.first.opens = flip();
  if (model.keys.second.used) model.keys.second.opens = flip();
  if (!model.keys.first.opens) model.keys.second = {true, true};
}

TEST_CASE("from any state every wish ends within 40 steps, at a fixed point, and no rule is broken on the way") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(range(0, 4000)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto flip = [&] { return random() % 2 == 0; };
  Model model = fresh();
  if (random() % 4 != 0) {
    model.record = some_record(static_cast<Phase>(random() % 3));
    model.record->exclusive_lock = flip();
    if (flip()) model.record->boot_id = "earlier";
    if (flip()) model.record->publishes.push_back({"/target", kPath, flip()});
  }
  if (flip()) {
    model.seen.devices.push_back(device_seen(3));
    if (model.record && flip()) model.record->device = 3;
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
  if (model.seen.image_open) model.seen.link = static_cast<Observation::Link>(random() % 4);
  model.seen.attached = !model.seen.devices.empty() && model.seen.link == Observation::Link::serving && flip();
  if (!model.seen.devices.empty() && !model.seen.attached && model.seen.link == Observation::Link::serving && !model.record)
    model.seen.link = Observation::Link::none;
  model.seen.key_known = random() % 4 != 0;
  if (model.seen.image_open && flip()) model.seen.image_size = 1 << 30;
  model.image_has_data = flip();
  model.image_has_filesystem = model.image_has_data && flip();
  model.marker = flip();
  model.ownership.lock = static_cast<Lock>(random() % 4);
  if (model.record) model.record->provisioned = flip();
  model.policy.fencing = flip();
  model.other_serves = random() % 4 == 0;
  if (flip()) model.stash = Stash{"pool", "", "image", "", flip(), false, flip() ? "/dev/nbd3" : "", "", ""};
  if (random() % 4 == 0) model.ownership.foreign_watchers.push_back("10.0.0.2:0/5");
  Staged staged = staged_wish();
  if (random() % 3 == 0) {
    staged.mounter = Mounter::krbd;
    if (model.record) model.record->kind = device::Kind::krbd;
    for (auto& device : model.seen.devices) device.kind = device::Kind::krbd;
    model.seen.link = Observation::Link::none;
    model.seen.attached = model.seen.lock_held = false;
  }
  Published published;
  published.path = kPath;
  published.target = "/target";
  model.cluster_bytes = flip() ? kTwo : 0;
  model.filesystem_bytes = flip() ? 1 << 20 : 1 << 30;
  if (flip())
    for (auto& mount : model.seen.mounts) mount.filesystem_read_only = true;
  const Expanded expanded{flip() ? kPath : "/target", flip() ? kTwo : 0};
  const std::array wishes{Wish(staged), Wish(Unstaged{kPath}), Wish(published), Wish(Unpublished{"/target"}), Wish(Healed{}), Wish(expanded),
                          Wish(Trimmed{expanded.path}), Wish(Rekeyed{})};
  const Wish& wish = wishes.at(random() % wishes.size());
  encrypt(model, random);
  Decision last;
  REQUIRE(run(model, wish, &last));
  if (std::holds_alternative<Done>(last)) CHECK(std::holds_alternative<Done>(model.decide(wish)));
}

TEST_CASE("there is a failpoint before and after every step, one inside each that has two effects, and no other") {
  const auto points = failpoint::names();
  constexpr auto last = static_cast<std::size_t>(Kind::remove_key);
  CHECK(points.size() == 2 * (last + 1) + 2);
  CHECK(std::ranges::count(points, "step.lock.broken") == 1);
  CHECK(std::ranges::count(points, "step.new_key.added") == 1);
  for (std::size_t kind = 0; kind <= last; ++kind) {
    const std::string step = "step." + std::string(name(static_cast<Kind>(kind)));
    CHECK(std::ranges::count(points, step + ".before") == 1);
    CHECK(std::ranges::count(points, step + ".after") == 1);
  }
}
