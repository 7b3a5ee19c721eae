#include "play.hpp"

#include <algorithm>
#include <map>

#include "request.hpp"
#include "support/world/world.hpp"

namespace corbd::matrix {
namespace {

using namespace std::chrono_literals;
using test::FakeImage;
using test::kBlocks;
using Moment = plan::NotServed::Moment;

const std::string kPod = "/kubelet/pods/1/volume", kSecondPod = "/kubelet/pods/2/volume";
constexpr std::uint64_t kGrown = 2u << 30;

/// What nobody may change on the image of a read-only volume.
struct Snapshot {
  explicit Snapshot(const FakeImage& image)
      : blocks(image.blocks),
        metadata(image.metadata),
        generation(image.generation),
        counts{image.checks, image.growths, image.trims},
        keys(image.luks ? image.luks->keys : std::map<int, std::string>()),
        folder(image.folder.has_value()),
        data(image.data) {}
  std::array<std::uint64_t, kBlocks> blocks;
  std::map<std::string, std::string> metadata;
  std::uint64_t generation;
  std::array<int, 3> counts;
  std::map<int, std::string> keys;
  bool folder, data;
  bool operator==(const Snapshot&) const = default;
};

class Play {
 public:
  explicit Play(const Cell& of) : cell_(of), table_(combination_of(of)), request_{of} {
    // Each type of KMS that keeps a key for each volume.
    request_.kms = static_cast<int>(of.features) % 2 == 0 ? "own" : "kept";
    image().id = "id-1";
    image().exclusive = (of.feature_bits() & image::kExclusiveLock) != 0;
    image().features = of.feature_bits();
    world_.attachment = {plan::Attachment::State::here, "uid-1", ""};
    world_.calls.before_call = [this](const std::string& call) { ++called_[call]; };
    world_.agent.start(true);
  }
  ~Play() {
    if (world_.agent.running()) world_.agent.kill();
  }

  std::vector<std::string> run(Event event) {
    prepare();
    const Snapshot before(image());
    if (event == Event::stage) {
      stage_refused();
      unstage_all();
      Snapshot after(image());
      after.counts.front() = before.counts.front();  // fsck comes before what an encrypted folder needs
      must(after == before, "a stage that was refused changed the image");
    } else if (stage_served()) {
      use();
      happen(event);
      look_at_data("at the end");
      take_down();
      if (cell_.reads()) must(Snapshot(image()) == before, "a volume that is only read was written");
    }
    for (const char* call : {"mkfs", "luks format", "fscrypt make"})
      must(called_[call] <= 1, std::string(call) + " twice");
    wrong_.insert(wrong_.end(), world_.broken_rules.begin(), world_.broken_rules.end());
    return std::move(wrong_);
  }

 private:
  FakeImage& image() { return world_.cluster.images[kVolume]; }
  test::KernelDevice* device() { return world_.kernel.devices.empty() ? nullptr : &world_.kernel.devices.front(); }
  bool by_kernel() const { return plan::is_for_kernel(table_); }
  bool by_rbd_nbd() const { return !world_.ceph_csi.daemons.empty(); }
  void must(bool holds, const std::string& otherwise) {
    if (!holds) wrong_.push_back(otherwise);
  }
  result<> want(plan::Wish wish) { return world_.agent.want(kVolume, std::move(wish)); }
  /// Repeats what failed, as kubelet does.
  bool insist(const std::string& what, const plan::Wish& wish) {
    auto done = want(wish);
    for (int tries = 0; tries < 12 && !done; ++tries) {
      loop_.advance(10s);
      done = want(wish);
    }
    must(done.has_value(), what + (done ? "" : ": " + done.error().text));
    return done.has_value();
  }
  void refused_as(const std::string& what, const result<>& done, const plan::NotServed& row) {
    must(!done, what + " is served, and the table refuses it: " + std::string(row.why));
    if (!done)
      must(done.error().code == row.code && done.error().text.find(row.why) != std::string::npos,
           what + " is refused for another reason than in the table: " + std::string(name(done.error().code)) + ", " +
               done.error().text);
  }
  /// `may_wait`: UNAVAILABLE is right while rbd-nbd serves the volume.
  void as_table(Moment moment, const std::string& what, const result<>& done, bool may_wait = false) {
    if (may_wait && by_rbd_nbd() && !done && done.error().code == errc::unavailable) return;
    if (const auto* row = plan::find_not_served(moment, table_)) return refused_as(what, done, *row);
    must(done.has_value(), what + (done ? "" : ": " + done.error().text));
  }
  bool has_mount(const std::string& target) const {
    return std::ranges::any_of(world_.kernel.mounts, [&](const auto& mount) { return mount.target == target; });
  }

  // --- before

  void prepare() {
    if (cell_.origin != Origin::nothing) fill_image();
    image().shared = cell_.access == Access::many_writers;
    if (cell_.by_ceph_csi()) by_ceph_csi();
    if (cell_.origin == Origin::adopted) adopt();
    if (cell_.origin == Origin::without_record) lose_record();
  }

  /// By an earlier stage as ReadWriteOnce.
  void fill_image() {
    Request maker = request_;
    maker.cell.access = Access::one_node;
    maker.cell.mounter = plan::Mounter::nbd;
    const std::string type = cell_.filesystem_there();
    if (cell_.origin == Origin::other_filesystem) maker.cell.use = type;
    if (cell_.origin == Origin::unencrypted) {
      maker.cell.encryption = Encryption::none;
      maker.cell.use = "ext4";
    }
    auto empty = maker.cell;
    empty.origin = Origin::nothing;
    if (plan::find_not_served(Moment::stage, combination_of(empty)) != nullptr) {
      image().data = true;
      image().content = host::Probe::Kind::filesystem;
      image().fstype = type;
      return;
    }
    const auto wish = stage_of(maker);
    must(wish && want(*wish), "the stage that fills the image");
    write_all();
    must(want(plan::Unstaged{kStagingPath}).has_value(), "the unstage after the image was filled");
    image().data = true;
  }

  void by_ceph_csi() {
    world_.agent.stop();
    const auto wish = stage_of(request_);
    if (!wish) return must(false, "the request of ceph-csi's stage: " + wish.error().text);
    const auto index = by_kernel() ? world_.ceph_csi.stages_with_krbd(kVolume, kStagingPath, kVolume, wish->capability)
                                   : world_.ceph_csi.stages(kVolume, kStagingPath, kVolume, wish->capability);
    if (cell_.has_pod()) world_.ceph_csi.publishes(kVolume, kStagingPath, kPod);
    if (!cell_.reads()) write_all();
    if (cell_.origin == Origin::ceph_csi_left && !by_kernel()) world_.ceph_csi.ends(index, false);
    world_.agent.start(true);
  }

  void adopt() {
    const auto wish = stage_of(request_);
    if (wish && insist("the stage of what is adopted", *wish) && !by_kernel()) insist("the adoption", plan::Adopted{});
    must(!by_rbd_nbd(), "rbd-nbd is there after the adoption");
  }

  void lose_record() {
    const auto wish = stage_of(request_);
    const auto pod = publish_of(request_, kPod);
    if (!wish || !pod || !insist("the stage of what is lost", *wish) || !insist("its publish", *pod)) return;
    if (!cell_.reads()) write_all();
    world_.agent.kill();
    world_.disk.records.clear();
    world_.agent.clients.clear();
    world_.agent.node.recorded.clear();
    world_.agent.start(true);
  }

  // --- the stage

  result<> stage() {
    const auto wish = stage_of(request_);
    return wish ? want(*wish) : wish.error();
  }

  void stage_refused() {
    if (table_.left_unserved) loop_.advance(test::kWatch + 1s);  // while a dead client watches, it is refused for that
    refused_as("the stage", stage(), *plan::find_not_served(Moment::stage, table_));
    if (table_.left_unserved) {
      must(want(plan::Healed{true}).has_value(), "an operator's word does not help");
      insist("the unpublish", plan::Unpublished{kPod});
      return;
    }
    must(!has_mount(plan::staging_target(kVolume, kStagingPath)), "a stage that was refused left its mount");
  }

  bool stage_served() {
    const auto wish = stage_of(request_);
    must(wish.has_value(), wish ? "" : "the request of the stage: " + wish.error().text);
    if (!wish || !insist("the stage", *wish)) return false;
    look_at_stage();
    return true;
  }

  void look_at_stage() {
    must(world_.kernel.devices.size() == 1, "one stage has made more than one device, or none");
    if (device() == nullptr) return;
    must(traits(device()->kind).served != by_kernel(), "another client serves it than the table says");
    must(device()->read_only == table_.capability.read_only, "the device is wrongly read-only, or wrongly writable");
    must(has_mount(plan::staging_target(kVolume, kStagingPath)), "nothing is mounted at the staging path");
    const bool header = cell_.encryption == Encryption::device || cell_.encryption == Encryption::with_integrity;
    must(device()->mapping.has_value() == header, "the mapping of its encryption is missing, or too much");
    must(device()->integrity == (cell_.encryption == Encryption::with_integrity), "the mapping of its tags is missing");
    must(device()->folder_key == (cell_.encryption == Encryption::files), "its encrypted folder is locked");
    must(world_.disk.records.size() == 1 && world_.disk.records.front().stagings.size() == 1 &&
             world_.disk.records.front().stagings.front().complete,
         "the record has not one complete staging");
  }

  // --- its use

  void use() {
    if (!has_mount(kPod)) publish(kPod);
    insist("the note of the attachment", plan::Attached{"uid-1"});
    if (!cell_.reads()) write_all();
    look_at_data("after the publish");
  }

  void publish(const std::string& target) {
    const auto wish = publish_of(request_, target);
    must(wish.has_value(), wish ? "" : "the request of the publish: " + wish.error().text);
    if (wish) insist("the publish", *wish);
    must(has_mount(target), "a pod got nothing");
  }

  void ask_all(bool write) {
    if (device() == nullptr) return must(false, "there is no device to use");
    for (std::size_t block = 0; block < kBlocks; ++block)
      write ? world_.kernel.application_writes(*device(), block) : world_.kernel.application_reads(*device(), block);
  }

  /// The application writes every block. `written_` is what the image then holds.
  void write_all() {
    ask_all(true);
    all_answered("a write");
    written_ = image().blocks;
  }

  void all_answered(const std::string& what) {
    for (int tries = 0; tries < 10 && device() != nullptr && !device()->requests.empty(); ++tries) loop_.advance(10s);
    must(device() != nullptr && device()->requests.empty(), what + " is not answered");
    must(world_.kernel.errors == 0, what + " failed");
  }

  void look_at_data(const std::string& when) {
    const auto before = world_.kernel.answered;
    ask_all(false);
    all_answered("a read " + when);
    must(world_.kernel.answered == before + kBlocks, "not every read was answered " + when);
    if (cell_.origin != Origin::nothing || !cell_.reads()) must(image().blocks == written_, "the data differ " + when);
  }

  // --- what happens

  void happen(Event event) {
    switch (event) {
      case Event::stage:
        return;
      case Event::requests:
        return ask();
      case Event::kill:
        world_.agent.kill();
        if (!cell_.reads()) ask_all(true);
        world_.agent.start(true);
        return settle();
      case Event::handover:
        if (!cell_.reads()) ask_all(true);
        world_.agent.hand_over(true);
        return settle();
      case Event::reboot:
        return reboot();
      case Event::cut_off:
        world_.network.cut();
        if (!cell_.reads()) ask_all(true);
        loop_.advance(1min);
        world_.network.mend();
        return settle();
      case Event::fenced:
        world_.cluster.fence_host(world_.agent.node_address);
        if (!cell_.reads()) ask_all(true);
        loop_.advance(2min);
        world_.cluster.unfence_host(world_.agent.node_address);
        return settle();
      case Event::unstaged_by_another:
        return unstaged_by_another();
    }
  }

  void settle() {
    loop_.advance(2min);
    all_answered("a request of meanwhile");
    if (!cell_.reads()) written_ = image().blocks;
    must(device() != nullptr && device()->alive, "nobody serves the device any more");
    insist("the healing", plan::Healed{});
    look_at_stage();
  }

  /// Stages the volume and publishes it to its pod again.
  void bring_back() {
    if (!stage_served()) return;
    publish(kPod);
    insist("the note of the attachment", plan::Attached{"uid-1"});
  }

  void reboot() {
    world_.reboot();
    for (const auto& [index, client] : std::map(world_.ceph_csi.daemons)) world_.ceph_csi.ends(index, false);
    loop_.advance(40s);
    world_.agent.start(true);
    loop_.advance(10s);
    bring_back();
  }

  void unstaged_by_another() {
    insist("the unpublish", plan::Unpublished{kPod});
    if (device() == nullptr) return must(false, "there is no device");
    world_.ceph_csi.unstages(device()->index, kVolume, kStagingPath);
    loop_.advance(1s);
    insist("the unstage after another's", plan::Unstaged{kStagingPath});
    look_whether_gone();
    bring_back();
  }

  // --- requests of a volume that is staged

  void ask() {
    must(stage().has_value(), "the same stage again");
    ask_otherwise();
    second_pod();
    expand();
    rotate();
    new_secrets();
    reclaim();
    if (by_kernel()) as_table(Moment::giving_up, "giving up", want(plan::GivenUp{}));
    must(stage().has_value(), "the same stage at last");
    look_at_stage();
  }

  /// ceph-csi opens LUKS without discards. Its mapping stays until the volume is staged again.
  void reclaim() {
    if (cell_.reads() && !cell_.block()) return;
    const auto done = want(plan::Trimmed{kStagingPath});
    const bool is_refused = plan::find_not_served(Moment::reclaim, table_) != nullptr;
    const bool undiscarded = !is_refused && cell_.by_ceph_csi() && cell_.encryption == Encryption::device;
    if (undiscarded && !done && done.error().code == errc::unimplemented) return;
    as_table(Moment::reclaim, "the reclaim", done, true);
  }

  /// Another request at the same path while a pod uses the volume.
  void ask_otherwise() {
    const auto ask_as = [&](const std::string& what, const Request& request, errc expected) {
      const auto wish = stage_of(request);
      if (!wish) return must(false, what + ": " + wish.error().text);
      const auto done = want(*wish);
      must(done ? expected == errc::ok : done.error().code == expected,
           what + ": " + (done ? "it is served" : done.error().text));
    };
    Request other = request_;
    other.cell.access = table_.capability.read_only ? Access::one_node : Access::many_readers;
    ask_as("a stage with another access mode", other, errc::already_exists);
    other = request_;
    other.cell.use = cell_.block() ? "ext4" : "block";
    if (cell_.access != Access::many_writers) ask_as("a stage of the other kind of use", other, errc::already_exists);
    other = request_;
    other.cell.use = image().fstype == "btrfs" ? "xfs" : "btrfs";
    if (!cell_.block()) ask_as("a stage with another fsType", other, errc::already_exists);
    other = request_;
    other.mount_flags = "noatime";
    ask_as("a stage with another mount flag", other, errc::ok);
    other = request_;
    other.cell.mounter = by_kernel() ? plan::Mounter::nbd : plan::Mounter::krbd;
    ask_as("a stage with another mounter", other, errc::ok);
    look_at_stage();
  }

  void second_pod() {
    const auto wish = publish_of(request_, kSecondPod);
    if (!wish) return must(false, "the request of a second pod");
    const auto done = want(*wish);
    as_table(Moment::second_pod, "a second pod", done);
    if (done) insist("the unpublish of the second pod", plan::Unpublished{kSecondPod});
  }

  void expand() {
    image().size = kGrown;
    world_.cluster.resized("id-1");
    if (device() != nullptr && (by_kernel() || by_rbd_nbd())) device()->size = kGrown;
    const int growths = image().growths;
    const auto done = want(plan::Expanded{kStagingPath, kGrown});
    as_table(Moment::expansion, "the expansion", done);
    if (!done || cell_.block() || cell_.reads()) return must(image().growths == growths, "it has grown");
    const bool header = cell_.encryption == Encryption::device;
    must(image().filesystem_bytes == kGrown - (header ? test::kLuksHeader : 0), "its filesystem does not fill it");
  }

  void rotate() {
    const auto keys = image().luks ? image().luks->keys : std::map<int, std::string>();
    const auto done = want(plan::Rekeyed{Secret(request_.passphrase)});
    as_table(Moment::rotation, "the rotation", done, true);
    must(world_.cluster.opens(kVolume), "its key does not open it after the rotation");
    if (image().luks)
      must(done.has_value() == (image().luks->keys != keys), "the rotation left its key, or changed it");
  }

  /// The Secret of an open volume gets a new Ceph key, and then another passphrase.
  void new_secrets() {
    world_.cluster.users["node"] = Secret("canary-key-2");
    request_.ceph_key = "canary-key-2";
    must(stage().has_value(), "a stage with the new Ceph key");
    Request other = request_;
    other.passphrase = "canary-passphrase-2";
    const auto wish = stage_of(other);
    must(wish && want(*wish), "a stage of an open volume with another passphrase");
  }

  // --- the end

  void take_down() {
    must(want(plan::Unstaged{"/kubelet/staging/another"}).has_value(), "the unstage of a path that nobody staged");
    const auto early = want(plan::Unstaged{kStagingPath});
    must(!early && early.error().code == errc::failed_precondition, "an unstage below a pod");
    must(device() != nullptr && device()->alive && has_mount(kPod), "an unstage of others took something away");
    insist("the unpublish", plan::Unpublished{kPod});
    unstage_all();
    must(cell_.reads() || image().blocks == written_, "the data differ after the unstage");
  }

  void unstage_all() {
    insist("the unstage", plan::Unstaged{kStagingPath});
    look_whether_gone();
  }

  void look_whether_gone() {
    loop_.advance(cell_.origin == Origin::ceph_csi_left ? test::kWatch + 1s : 1s);
    must(world_.kernel.devices.empty(), "a device is left");
    must(world_.kernel.mounts.empty(), "a mount is left");
    must(world_.disk.records.empty(), "a record is left");
    must(world_.disk.stashes.empty(), "a stash is left");
    must(world_.cluster.opened.empty(), "an image is left open");
    must(image().lock_owner.empty(), "the image is left locked");
    must(image().watchers.empty(), "the image is left watched");
    must(world_.kernel.read_only_numbers.empty(), "a number is left read-only");
  }

  const Cell cell_;
  const Combination table_;
  Request request_;
  std::vector<std::string> wrong_;
  std::map<std::string, int> called_;
  std::array<std::uint64_t, kBlocks> written_{};
  test::Loop loop_;
  test::World world_{loop_};
};

}  // namespace

std::string_view name(Event event) {
  constexpr std::array<std::string_view, 8> names{"stage",  "requests", "kill",   "handover",
                                                  "reboot", "cut-off",  "fenced", "unstaged-by-another"};
  return names.at(static_cast<std::size_t>(event));
}

bool can_happen(const Cell& cell, Event event) {
  const bool by_kernel = plan::is_for_kernel(combination_of(cell));
  const bool by_rbd_nbd = !by_kernel && cell.origin == Origin::ceph_csi_runs;
  if (event == Event::cut_off) return !by_rbd_nbd;
  if (event == Event::fenced) return !by_kernel && !by_rbd_nbd;
  return true;
}

std::vector<std::string> play(const Cell& cell, Event event) { return Play(cell).run(event); }

}  // namespace corbd::matrix
