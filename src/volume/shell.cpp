// Turns wishes into operations. Equal wishes share one, and the volume's lock orders the others (operation_runner.cpp
// carries one out).
#include "corbd/volume/shell.hpp"

#include <algorithm>

#include "closes.hpp"
#include "corbd/core/log.hpp"
#include "full_pools.hpp"
#include "neighbours.hpp"
#include "operation_runner.hpp"
#include "other_clients.hpp"
#include "preopener.hpp"
#include "secret_watch.hpp"
#include "snapshots.hpp"
#include "trimmer.hpp"
#include "views.hpp"

namespace corbd::volume {
namespace {

// A conflicting call gets its answer this long before its own deadline.
constexpr std::chrono::seconds kAnswerBefore{5};
// Interval of checks whether the wait for another client is over.
constexpr duration kLookUp = std::chrono::milliseconds(300);
// An agent that ends has little time for its devices. A thaw needs their server, and ceph-csi may come next.
constexpr std::chrono::milliseconds kSnapshotsEndWithin{500}, kThawsAtEndWithin{500};
// A handover carries no freeze: the next agent would have to thaw first.
constexpr std::chrono::seconds kThawsBeforeHandover{1};

/// Brings paths into mountinfo's form, so that they can be compared with it and with each other.
void make_real(Wish& wish, const NodeFiles& files) {
  const auto each = [&](auto&... paths) { ((paths = files.real_path(std::move(paths))), ...); };
  if (auto* staged = std::get_if<Staged>(&wish)) each(staged->path);
  if (auto* unstaged = std::get_if<Unstaged>(&wish)) each(unstaged->path);
  if (auto* published = std::get_if<Published>(&wish)) each(published->path, published->target);
  if (auto* unpublished = std::get_if<Unpublished>(&wish)) each(unpublished->target);
  if (auto* expanded = std::get_if<Expanded>(&wish)) each(expanded->path, expanded->target);
  if (auto* trimmed = std::get_if<Trimmed>(&wish)) each(trimmed->path);
}

}  // namespace

class Shell::Impl {
 public:
  Impl(executor control, Clock& clock, Ports ports, Config config)
      : ports_(std::move(ports)), config_(std::move(config)), control_(std::move(control)), clock_(clock) {}
  task<result<>> start();
  task<> load_credential(Volume& volume, const Record& record);
  task<result<>> start_beside(Until noted);
  task<result<>> want(std::string id, Wish wish, Until until);
  bool is_here(const std::string& id, const Staged& wish) const;
  result<> check_room(const std::string& id, const Wish& wish, const Volume& volume) const;

 private:
  friend class Shell;
  task<> run(Volume& volume, std::shared_ptr<Operation> operation, Until lock_until);
  task<> fulfil(Volume& volume, Operation& operation, Until until);
  void resume();
  task<> leave_cut_short(Volume& volume);
  void link_dead(device::Kind kind, std::uint32_t index);

  const Ports ports_;
  const Config config_;
  executor control_;
  Clock& clock_;
  Gate gate_{control_, clock_};
  Closes closes_{control_, clock_, ports_, volumes_, [this] { return shutdown_.begun(); }};
  bool cordoned_ = false;
  std::optional<Capacity> capacity_;
  HealthTracker health_{clock_, ports_};
  UsageReader usage_{control_, clock_, ports_, volumes_, gate_};
  ManualChecks checks_{clock_};
  Steps steps_{control_,
               clock_,
               ports_,
               config_,
               health_,
               [this](auto link, auto image, auto given_up) {
                 closes_.begin(std::move(link), std::move(image), std::move(given_up));
               },
               {[this](const std::string& id, auto answer) { snapshots_.asked(id, std::move(answer)); },
                [this](const std::string& id) { snapshots_.ended(id); }},
               [this](const Volume& volume) { return numbers_of_others(volume, volumes_, ports_, config_.boot_id); },
               checks_};
  Snapshots snapshots_{
      control_, clock_, config_, volumes_, health_, gate_, [this](std::string id, Wish wish, Until until) {
        return want(std::move(id), std::move(wish), until);
      }};
  Stalls stalls_{control_, clock_, ports_, volumes_, gate_};
  KernelWatch kernel_watch_{clock_, ports_, volumes_, health_, gate_};
  SecretWatch secret_watch_{
      control_, clock_, ports_, config_, volumes_, gate_, [this](std::string id, Wish wish, Until until) {
        return want(std::move(id), std::move(wish), until);
      }};
  Trimmer trimmer_{control_, clock_, ports_, config_, volumes_, gate_, [this](std::string id, Wish wish, Until until) {
                     return want(std::move(id), std::move(wish), until);
                   }};
  Shutdown shutdown_{control_, clock_, ports_,        volumes_,      gate_,   closes_,
                     steps_,   usage_, kernel_watch_, secret_watch_, trimmer_};
  Preopener preopener_{control_, clock_, ports_, volumes_, config_.policy};
  OtherClients other_clients_{ports_, volumes_, health_};
  OperationRunner runner_{control_, clock_, ports_, config_, volumes_, steps_, health_, stalls_, shutdown_};
  /// The last member, so that links and images go first: their ends call back.
  VolumeMap volumes_{control_, clock_};
};

task<result<>> Shell::Impl::start() {
  auto loaded = co_await ports_.records.load();
  if (!loaded) co_return loaded.error();
  for (const auto& file : loaded->set_aside)
    log::error(
        "record.corrupt",
        {{"set_aside_as", file},
         {"hint",
          "the file is kept under that name. If the volume has an nbd device, that still carries the volume ID"}});
  for (const auto& file : loaded->newer)
    log::warning("record.newer",
                 {{"file", file}, {"hint", "a newer version of the agent wrote it, so it is left alone"}});
  for (auto& record : loaded->records) {
    Volume& volume = volumes_.find_or_create(record.volume_id);
    co_await load_credential(volume, record);
    volume.record = with_real_paths(std::move(record), ports_.files);
    volume.writes.on_disk.written(*volume.record);
    volume.device.gone = volume.record->device.boot_id != config_.boot_id;
    // The earlier agent ended before this, but nobody knows when. The kernel client serves its devices without an
    // agent.
    if (volume.record->device.index && !volume.device.gone && traits(volume.record->device.kind).served)
      volume.history.unserved_since = clock_.now();
    health_.note_health(volume, "the agent started");
    snapshots_.note(volume);
  }
  ports_.devices.on_link_dead([this](device::Kind kind, std::uint32_t index) { link_dead(kind, index); });
  kernel_watch_.start();
  secret_watch_.start();
  trimmer_.start();
  co_return result<>();
}

task<> Shell::Impl::load_credential(Volume& volume, const Record& record) {
  auto key = co_await ports_.records.load_key(record);
  if (key)
    volume.credentials.loaded({record.user, std::move(*key)});
  else
    volume.key_unread = key.error().text;
  if (auto newer = preopener_.instead_of(volume.id, volume.credentials.known()))
    volume.credentials.replace(std::move(*newer));
  // A reboot removes all key files.
  if (volume.credentials.known().empty() && record.device.boot_id == config_.boot_id && !record.failed)
    log::warning("key.not_read",
                 {{"volume", volume.id},
                  {"error", volume.key_unread},
                  {"effect", "the volume is served again once its Secret, or its next stage, brings the key"}});
}

task<result<>> Shell::Impl::start_beside(Until noted) {
  if (auto known = co_await ports_.clusters.reload_predecessor_clients(false); !known)
    co_return with_context("cannot read which Ceph clients the agent that serves has", known.error());
  if (auto loaded = co_await start(); !loaded) co_return loaded;
  // Write them only now: if this agent ended without the records, the other one would serve on, and a client that never
  // could write would be fenced. And write them while that one serves: opening an image would otherwise write them
  // within that device's stall.
  co_await ports_.clusters.record_prepared(noted);
  co_return result<>();
}

/// Whether the node has the volume's device or mount already, or may have: a stage then adds nothing to carry.
bool Shell::Impl::is_here(const std::string& id, const Staged& wish) const {
  const auto mounts = ports_.mounts.table();
  return !mounts || !(*mounts)->at(wish.path).empty() || (*mounts)->has_below(wish.path) ||
         std::ranges::any_of(volume::unclaimed(volumes_, ports_.devices.inventory(), mounts),
                             [&](const Unclaimed& one) { return one.volume_id == id; });
}

/// Volumes that are being staged count too: a hundred stages may come at the same time.
result<> Shell::Impl::check_room(const std::string& id, const Wish& wish, const Volume& volume) const {
  const auto* staged = std::get_if<Staged>(&wish);
  if (!capacity_ || staged == nullptr || volume.record || !volume.operations.empty()) return {};
  std::uint64_t count = 0;
  for (const auto& [other, one] : volumes_) count += one->record || !one->operations.empty() ? 1 : 0;
  auto room = capacity_->check_room_beside(count);
  if (room || is_here(id, *staged)) return {};
  return room;
}

task<result<>> Shell::Impl::want(std::string id, Wish wish, Until until) {
  if (shutdown_.begun()) co_return stopping();
  make_real(wish, ports_.files);
  Volume& volume = volumes_.find_or_create(id);
  if (cordoned_ && std::holds_alternative<Staged>(wish) && !volume.record && volume.operations.empty()) {
    volumes_.forget_if_idle(id);
    co_return Error{errc::unavailable,
                    "this node is cordoned and stages no new volume: `corbd drain --undo` ends that"};
  }
  if (auto room = check_room(id, wish, volume); !room) {
    volumes_.forget_if_idle(id);
    co_return room;
  }
  const auto same = [&](const auto& operation) { return operation->wish == wish; };
  auto place = std::find_if(volume.operations.begin(), volume.operations.end(), same);
  std::shared_ptr<Operation> operation;
  if (place != volume.operations.end()) {
    operation = *place;
  } else {
    operation = std::make_shared<Operation>(wish, control_, clock_);
    volume.operations.push_back(operation);
    Until lock_until;
    if (until.deadline != time_point::max()) lock_until.deadline = until.deadline - kAnswerBefore;
    gate_.spawn(run(volume, operation, lock_until));
  }
  const Waited how = co_await operation->done.wait(until);
  if (how != Waited::ready)
    co_return wait_error(how,
                         "the " + std::string(name(wish)) + " of volume " + id + ", which continues in the background");
  co_return operation->outcome;
}

task<> Shell::Impl::run(Volume& volume, std::shared_ptr<Operation> operation, Until lock_until) {
  auto guard = co_await volume.lock.lock(lock_until);
  if (guard) {
    while (volume.link_scopes.size() > 1) volume.link_scopes.pop_front();
    co_await fulfil(volume, *operation, lock_until);
    guard->release();
  } else {
    operation->outcome = Error{errc::busy, "another operation on volume " + volume.id + " is under way: repeat later"};
  }
  volume.operations.remove(operation);
  operation->done.set();
  snapshots_.note(volume);
  volumes_.forget_if_idle(std::string(volume.id));
}

/// A stage waits for another client that has the image. The image is closed meanwhile, because our watch must keep
/// nobody out. Any other request for the volume ends the wait.
task<> Shell::Impl::fulfil(Volume& volume, Operation& operation, Until until) {
  for (unsigned tries = 1;; ++tries) {
    operation.outcome = co_await runner_.fulfil(volume, operation.wish);
    // No caller asked for a piece of a scheduled trim, so its failure is none of the volume.
    const auto* trim = std::get_if<Trimmed>(&operation.wish);
    if (trim == nullptr || !trim->from) health_.note_outcome(volume, operation.wish, operation.outcome);
    const auto pause = pause_before_retry(operation.wish, operation.outcome, volume.facts, tries);
    const auto now = clock_.now();
    if (!pause || until.deadline == time_point::max() || now >= until.deadline) co_return;
    const auto next = std::min(now + *pause, until.deadline);
    while (clock_.now() < next) {
      if (shutdown_.begun() || cordoned_ || volume.operations.size() > 1) co_return;
      co_await sleep_until(control_, clock_, std::min(next, clock_.now() + kLookUp));
    }
  }
}

/// Closes images that operations left open when the handover cut them short. Their callers may never come again.
void Shell::Impl::resume() {
  shutdown_.resume();
  snapshots_.resume();
  std::vector<Volume*> open;
  for (const auto& [id, volume] : volumes_)
    if (volume->server.image() != nullptr && !volume->server.serves()) open.push_back(volume.get());
  // Each forgets no volume but its own.
  for (Volume* const volume : open) gate_.spawn(leave_cut_short(*volume));
}

task<> Shell::Impl::leave_cut_short(Volume& volume) {
  ++volume.users;
  if (auto guard = co_await volume.lock.lock({})) {
    co_await runner_.leave_cut_short(volume);
    guard->release();
  }
  --volume.users;
  volumes_.forget_if_idle(std::string(volume.id));
}

void Shell::Impl::link_dead(device::Kind kind, std::uint32_t index) {
  Volume* const known = volumes_.find(ports_.devices.of(kind).backend_of(index));
  if (known == nullptr || !known->record || known->server.serves()) return;
  Volume& volume = *known;
  if (volume.other.serves && !volume.other.died) volume.other.died = volume.history.unserved_since = clock_.now();
  health_.report_failure(volume, "the kernel reports a dead link");
}

Shell::Shell(executor control, Clock& clock, Ports ports, Config config)
    : impl_(std::make_unique<Impl>(std::move(control), clock, std::move(ports), std::move(config))) {}
Shell::~Shell() = default;
task<result<std::vector<std::string>>> Shell::preopen(Until until) { return impl_->preopener_.preopen(until); }
task<result<>> Shell::start() { return impl_->start(); }
task<result<>> Shell::start_beside(Until noted) { return impl_->start_beside(noted); }
task<> Shell::fence_early(Until until) { return impl_->preopener_.fence_early(until); }
task<result<>> Shell::want(std::string volume_id, Wish wish, Until until) {
  return impl_->want(std::move(volume_id), std::move(wish), until);
}
task<result<host::Usage>> Shell::usage(std::string volume_id, std::string path, Until until) {
  return impl_->usage_.read(std::move(volume_id), std::move(path), until);
}
result<ManualCheck> Shell::check_by_hand(const std::string& volume_id, const std::string& token, bool repair) {
  const Volume* const known = impl_->volumes_.find(volume_id);
  const auto refused = known == nullptr ? std::nullopt : why_not_checked(*known, impl_->ports_);
  return impl_->checks_.ask(volume_id, token, repair, refused);
}
void Shell::count_used() { impl_->usage_.count_used(); }
task<Users> Shell::users(std::string cluster_id, Until until) {
  return impl_->other_clients_.users(std::move(cluster_id), until);
}
task<result<Holding>> Shell::holders(ImageAt at, Until until) {
  return impl_->other_clients_.holders(std::move(at), until);
}
task<result<Holding>> Shell::take_image(ImageAt at, Until until) {
  return impl_->other_clients_.take_image(std::move(at), until);
}
std::vector<Status> Shell::status() const {
  return volume::status(impl_->volumes_, look(impl_->volumes_, impl_->ports_));
}
std::optional<Status> Shell::status(const std::string& volume_id) const {
  return volume::status(impl_->volumes_, impl_->ports_, volume_id);
}
std::vector<Unclaimed> Shell::unclaimed() const {
  return volume::unclaimed(impl_->volumes_, impl_->ports_.devices.inventory(), impl_->ports_.mounts.table());
}
std::vector<Unclaimed> Shell::left_to_kernel() const {
  return volume::left_to_kernel(impl_->volumes_, impl_->ports_.kernel.inventory(), impl_->ports_.mounts.table());
}
Overview Shell::overview() const { return volume::overview(impl_->volumes_, look(impl_->volumes_, impl_->ports_)); }
std::vector<Change> Shell::timeline(const std::string& volume_id) const {
  const Volume* known = impl_->volumes_.find(volume_id);
  if (known == nullptr) return {};
  return {known->history.timeline.begin(), known->history.timeline.end()};
}
void Shell::set_listeners(std::vector<Listener*> listeners) { impl_->health_.set_listeners(std::move(listeners)); }
void Shell::set_cordoned(bool on) { impl_->cordoned_ = on; }
void Shell::set_capacity(Capacity capacity) { impl_->capacity_ = std::move(capacity); }
task<> Shell::stop(Until until) {
  co_await impl_->snapshots_.leave(kSnapshotsEndWithin, kThawsAtEndWithin);
  co_await impl_->shutdown_.stop(until);
}
std::vector<std::string> Shell::answering(const std::vector<std::string>& volume_ids) const {
  return impl_->shutdown_.answering(volume_ids);
}
task<> Shell::restore_keys(std::vector<std::string> volume_ids, Until until) {
  return impl_->shutdown_.restore_keys(std::move(volume_ids), until);
}
task<std::map<std::string, std::string>> Shell::not_again(std::vector<std::string> volume_ids, Until until) const {
  return impl_->preopener_.not_again(std::move(volume_ids), until);
}
task<std::map<std::string, std::string>> Shell::in_full_pools(Until until) const {
  return volume::in_full_pools(impl_->ports_, impl_->clock_, impl_->volumes_, until);
}
task<result<>> Shell::quiesce() {
  co_await impl_->snapshots_.leave(impl_->config_.freeze_limit, kThawsBeforeHandover);
  co_return co_await impl_->shutdown_.quiesce();
}
void Shell::resume() { impl_->resume(); }
task<std::size_t> Shell::hand_over(Recipient recipient) { return impl_->shutdown_.hand_over(std::move(recipient)); }

}  // namespace corbd::volume
