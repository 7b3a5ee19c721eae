// An open image of the cluster, used by one client.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "support/world/ports.hpp"

namespace corbd::test {

using image::Ownership;

namespace {

constexpr std::uint64_t kUnknownFeatures = 1 << 12;

bool has_lock(const FakeImage& image, const std::string& client, int handle) {
  return image.lock_owner == client && (image.lock_handle == 0 || image.lock_handle == handle);
}

void note_new_owner(const World& world, FakeImage& image) {
  const std::string& node = world.agent.node_address;
  if (!image.locked_at.empty() && image.locked_at != node) {
    image.taken = world.loop().clock.now();
    image.taken_by = node;
  } else if (image.taken_by != node) {
    image.taken.reset();
  }
  image.locked_at = node;
}

}  // namespace

std::optional<Error> why_refused(const FakeImage& image, const image::OpenOptions& options, bool pool_caches) {
  const bool writes = !options.read_only || options.refuse_as_writer;
  const std::string which = "image with id " + image.id;
  if (image.secondary) return Error{errc::failed_precondition, which + " is the mirror of another cluster's image"};
  const std::uint64_t hidden = options.despite_dirty_cache ? FakeImage::kDirtyCache : 0;
  if (auto refused = image::refuse({image.features & ~hidden, 0}, writes, which)) return refused;
  if (writes && (image.cached || pool_caches)) return Error{errc::unsafe_config, which + " has rbd_cache=true"};
  return std::nullopt;
}

FakeOpened::FakeOpened(World& world, FakeImage& of, std::string client, image::OpenOptions options)
    : world_(world),
      serial_(world.cluster.new_serial()),
      client_(std::move(client)),
      exclusive_(of.exclusive),
      caches_before_flush_(of.caches_before_flush),
      reads_(of.reads),
      size_(of.size),
      options_(std::move(options)) {
  key_ = {"fsid", 1, "", of.id, 0};
  // A reader does not watch, so it leaves the header's time of change alone.
  if (!options_.read_only) {
    of.watchers.insert(client_);
    of.break_time = 0;
  }
  if (!options_.read_only && of.features >= kUnknownFeatures)
    world_.broke("an image was opened for writing that has a feature of a newer librbd");
  for (const auto& device : world_.kernel.devices)
    if (device.kind == device::Kind::krbd && device.image_id == of.id && !options_.read_only)
      world_.broke("an image was opened for writing that the kernel has mapped");
  world_.cluster.opened[serial_] = this;
}

/// The client notices a change of the header.
bool FakeOpened::needs_flush() const {
  const FakeImage* image = world_.cluster.by_id(key_.image_id);
  return image != nullptr && (image->features & FakeImage::kJournaling) != 0;
}

std::string FakeOpened::refused_again() const {
  const FakeImage* image = world_.cluster.by_id(key_.image_id);
  if (image == nullptr) return "";
  const auto refused = why_refused(*image, options_, seen_->pool_caches);
  return refused ? refused->text : "";
}

/// Tells of a refusal that follows an answer, too: it may overtake that one.
bool FakeOpened::quiesce(std::function<void(int)> told) {
  if (!quiesce_ || *gone_ || closing_) return false;
  owed_ = std::make_shared<std::function<void(int)>>(told);
  quiesce_->asked(
      [&world = world_, still = std::weak_ptr(owed_), told, answered = std::make_shared<bool>(false)](int r) {
        if (std::exchange(*answered, true) && r == 0) world.broke("a snapshotter was answered twice");
        const auto owed = still.lock();
        if (!owed) return;
        *owed = nullptr;
        told(r);
      });
  return true;
}

void FakeOpened::unquiesce() {
  if (quiesce_ && !*gone_ && !closing_) quiesce_->ended();
}

FakeOpened::~FakeOpened() {
  if (owed_ && *owed_) (*owed_)(-ESHUTDOWN);
  world_.cluster.opened.erase(serial_);
  if (!world_.agent.running()) return;
  if (!closed_) {
    const Handle handle{key_.image_id, client_, serial_, gone_, lock_kept_};
    const bool reaches = !world_.network.is_cut() && !world_.cluster.ticketless.contains(client_);
    reaches ? close_now(world_, handle) : close_later(world_, handle, world_.agent.life());
  }
  world_.agent.end_if_idle(client_);
}

/// Whether the client has another open handle of that image.
bool FakeOpened::has_another(const World& world, const std::string& image_id, const std::string& client, int serial,
                             bool readers_too) {
  return std::ranges::any_of(world.cluster.opened, [&](const auto& entry) {
    const FakeOpened& other = *entry.second;
    return other.serial_ != serial && !*other.gone_ && (readers_too || !other.options_.read_only) &&
           other.key_.image_id == image_id && other.client_ == client;
  });
}

/// A handle is closed once, however often that is requested. Its client may have another one of the same image, whose
/// watch and lock are not this one's.
void FakeOpened::close_now(World& world, const Handle& handle) {
  if (std::exchange(*handle.gone, true)) return;
  FakeImage* of = world.cluster.by_id(handle.image_id);
  if (of == nullptr) return;
  const bool watches = has_another(world, handle.image_id, handle.client, handle.serial, false);
  if (!watches) of->watchers.erase(handle.client);
  if (!watches && handle.lock_kept) world.agent.node.left.insert({handle.client, handle.image_id});
  if (world.cluster.refuses(handle.client)) return;
  if (of->writer == handle.client && of->writer_handle == handle.serial) of->writer.clear();
  if (!has_lock(*of, handle.client, handle.serial)) return;
  of->lock_owner.clear();
  of->changed();
}

void FakeOpened::give_up_client() {
  std::vector<int> of_client;
  for (const auto& [serial, image] : world_.cluster.opened)
    if (image->client() == client_) of_client.push_back(serial);
  world_.agent.note_cut(client_);
  for (const int serial : of_client)
    if (const auto place = world_.cluster.opened.find(serial); place != world_.cluster.opened.end())
      place->second->cut_off("its client was given up");
}

void FakeOpened::resized() {
  const FakeImage* of = world_.cluster.by_id(key_.image_id);
  if (of == nullptr || std::exchange(size_, of->size) == of->size) return;
  if (options_.on_resized) options_.on_resized();
}

/// An OSD carries out one client's requests to one object in their order: a request whose caller gave up overtakes
/// nothing.
task<result<>> FakeOpened::ask(std::string call, Until until, Calls::Effect effect) {
  if (!*asks_since_) *asks_since_ = world_.loop().clock.now();
  auto answered = [since = asks_since_, effect = std::move(effect)] {
    since->reset();
    return effect();
  };
  const auto since = asks_since_;
  auto done = co_await world_.calls.ask_cluster(std::move(call), client_, until, std::move(answered), key_.image_id);
  // A call that its caller left is still under way.
  if (done || (done.error().code != errc::timed_out && done.error().code != errc::cancelled)) since->reset();
  co_return done;
}

duration FakeOpened::unanswered() const {
  return *asks_since_ ? world_.loop().clock.now() - **asks_since_ : duration::zero();
}

/// A new client asks too: it has tickets if its user is let in.
task<result<image::Hearing>> FakeOpened::hearing(image::Range, Until until) {
  const auto deaf = std::make_shared<bool>(false);
  const std::weak_ptr<Seen> still = seen_;
  auto done = co_await world_.calls.ask_cluster(
      "hearing", "", until, [&cluster = world_.cluster, client = client_, id = key_.image_id, deaf]() -> result<> {
        if (!cluster.users.contains(cluster.sessions.at(client)))
          return Error{errc::unauthenticated, "the cluster knows no user " + cluster.sessions.at(client)};
        const bool hears_nothing = cluster.ticketless.contains(client) || cluster.deaf_for.contains({client, id});
        *deaf = hears_nothing && !cluster.data_hang;
        return {};
      });
  if (!done) co_return done.error();
  if (still.expired()) co_return image::Hearing::as_others;
  if (!*deaf) unheard_since_.reset();
  if (!*deaf) co_return image::Hearing::as_others;
  const time_point now = world_.loop().clock.now();
  if (!unheard_since_) unheard_since_ = now;
  co_return now - *unheard_since_ >= std::chrono::seconds(20) ? image::Hearing::deaf : image::Hearing::unsure;
}

task<result<>> FakeOpened::refresh(Until until) {
  const std::weak_ptr<Seen> still = seen_;
  auto asked = co_await ask("refresh", until, [&world = world_, still]() -> result<> {
    if (const auto seen = still.lock()) seen->pool_caches = world.cluster.pools_cache;
    return {};
  });
  if (asked && !still.expired()) resized();
  co_return asked;
}

void FakeOpened::cut_off(const std::string& why) {
  if (std::exchange(told_, true)) return;
  world_.agent.note_cut(client_);
  if (options_.on_lost) options_.on_lost(why);
}

Work FakeOpened::work_of(const image::Op& op, std::uint64_t offset) const {
  // Only the world's own session submits here.
  const auto& from = static_cast<const SessionOp&>(op);
  const KernelDevice* device = world_.kernel.by_index(from.device);
  const FakeImage* of = world_.cluster.by_id(key_.image_id);
  Work work;
  work.node = &world_;
  work.with_lock = of == nullptr || !of->exclusive || of->shared || of->lock_owner == client_;
  work.life = world_.agent.life();
  work.client = client_;
  work.image_id = key_.image_id;
  work.write = from.write;
  work.block = offset / kBlockBytes;
  work.device_visits = device == nullptr ? 0 : device->visits;
  work.link_visits = from.link->visits;
  return work;
}

void FakeOpened::write(image::Op& op, std::uint64_t offset, std::span<const std::byte> from) {
  auto work = work_of(op, offset);
  std::memcpy(&work.number, from.data(), sizeof work.number);
  work.done = [&op](int error, std::uint64_t) { op.done(&op, error); };
  world_.cluster.submit(std::move(work));
}

void FakeOpened::read(image::Op& op, std::uint64_t offset, std::span<std::byte> into) {
  auto work = work_of(op, offset);
  work.done = [&op, into](int error, std::uint64_t number) {
    std::memcpy(into.data(), &number, sizeof number);
    op.done(&op, error);
  };
  world_.cluster.submit(std::move(work));
}

task<result<Ownership>> FakeOpened::ownership(Until until) {
  const auto found = std::make_shared<Ownership>();
  auto done =
      co_await ask("ownership", until, [&world = world_, id = key_.image_id, by = client_, found]() -> result<> {
        FakeImage* of = world.cluster.by_id(id);
        if (of == nullptr) return Error{errc::not_found, "image " + id + " does not exist any more"};
        if (of->lock_by_hand && of->exclusive)
          return Error{errc::in_use, "image " + id + " has a lock that somebody made by hand"};
        const auto known = world.agent.clients.find(of->lock_owner);
        found->self = by;
        found->owner = of->lock_owner;
        found->version = of->version;
        found->modified = of->modified;
        found->features.bits = of->features;
        if (of->lock_owner == by)
          found->lock = of->lock_handle == FakeImage::kKept ? Ownership::Lock::our_dead : Ownership::Lock::mine;
        else if (known != world.agent.clients.end() && known->second == Client::live &&
                 !world.agent.yields(known->first) && !world.agent.node.left.contains({known->first, id}))
          return Error{errc::unavailable, "the image is still being closed on another connection of this agent"};
        else if (known != world.agent.clients.end())
          found->lock = Ownership::Lock::our_dead;
        else if (!of->lock_owner.empty())
          found->lock = Ownership::Lock::other;
        const bool keeps = of->owner_lives() && of->lock_handle == FakeImage::kKept;
        std::set<std::string> watchers = of->watchers;
        if (!of->lock_watcher.empty() && !(keeps && world.agent.yields(of->lock_watcher)))
          watchers.insert(of->lock_watcher);
        for (const auto& watcher : watchers)
          if (world.agent.yields(watcher))
            return Error{errc::unavailable, "the predecessor still has the image open"};
          else if (!world.agent.clients.contains(watcher))
            found->foreign_watchers.push_back(watcher);
        auto& seen = of->seen_by[world.agent.node_address];
        seen = {found->foreign_watchers.begin(), found->foreign_watchers.end()};
        found->handed_over = world.agent.handed_over(of->writer) || world.agent.node.left.contains({of->writer, id});
        found->marked = of->writer == by;
        if (of->writer.empty() || world.agent.clients.contains(of->writer)) return {};
        found->writer = of->writer;
        found->writer_signed = of->writer_signs;
        seen.insert(of->writer);
        return {};
      });
  if (!done) co_return done.error();
  seen_version_ = found->version;
  co_return *found;
}

task<result<>> FakeOpened::break_dead_lock(std::string owner, std::int64_t break_time, Until until) {
  const auto known = world_.agent.clients.find(owner);
  const bool foreign = known == world_.agent.clients.end();
  if (foreign && !world_.cluster.has_entry(owner) && !world_.cluster.had_entry(owner, world_))
    world_.broke("a lock was to be broken that is neither ours nor that of a client that is cut off: " + owner);
  const bool yields = world_.agent.yields(owner) || world_.agent.node.left.contains({owner, key_.image_id});
  const bool own = owner == client_;
  if (own && has_another(world_, key_.image_id, client_, serial_, true))
    co_return Error{errc::unavailable, owner + " has not closed the image yet"};
  if (!foreign && !own && known->second != Client::fenced && !yields)
    co_return Error{errc::failed_precondition, owner + " is not a fenced client of this agent"};
  const auto left = std::make_shared<std::uint64_t>(0);
  auto broken = co_await ask(
      "break lock", until,
      [&world = world_, id = key_.image_id, owner, break_time, yields, foreign, own, left]() -> result<> {
        FakeImage* of = world.cluster.by_id(id);
        if (of == nullptr || of->lock_owner != owner || (own && of->lock_handle != FakeImage::kKept))
          return Error{errc::unproven, owner + " does not hold the lock any more"};
        const bool cut_off = world.cluster.has_entry(owner) || world.cluster.had_entry(owner, world);
        if (!own && !cut_off && !world.cluster.ended.contains(owner) && (!yields || of->watchers.contains(owner)))
          world.broke("a lock was broken whose owner is not fenced, and has not ended");
        of->lock_owner.clear();
        of->changed(break_time);
        *left = of->version;
        if (foreign) return {};
        // With a disk that keeps refusing the record the break is done without, and
        // proves nothing later.
        if (!world.disk.break_record_refused(id)) of->our_break = of->version;
        return {};
      });
  if (broken) seen_version_ = *left;
  co_return broken;
}

/// librbd's own look before it takes the lock, and corbd's. The lock is another operation.
task<result<>> FakeOpened::see_header(Until until) {
  co_return co_await ask("see header", until,
                         [&world = world_, id = key_.image_id, seen = seen_version_]() -> result<> {
                           const FakeImage* of = world.cluster.by_id(id);
                           if (of == nullptr) return Error{errc::not_found, "image " + id + " does not exist any more"};
                           if (seen != 0 && of->version != seen) return Error{errc::unproven, "the header has changed"};
                           return {};
                         });
}

task<result<>> FakeOpened::acquire_lock(Until until) {
  const auto began = world_.loop().clock.now();
  world_.agent.node.left.erase({client_, key_.image_id});
  if (exclusive_)
    if (auto same = co_await see_header(until); !same) co_return same;
  const FakeImage* now = world_.cluster.by_id(key_.image_id);
  const bool has = now != nullptr && has_lock(*now, client_, serial_);
  const auto at = std::make_shared<LockTime>(LockTime{began, began});
  result<> taken;
  if (!has) taken = co_await take_lock(until, at);
  // Nobody hears when that lock comes, or came.
  at->left = !taken && (taken.error().code == errc::timed_out || taken.error().code == errc::cancelled);
  if (FakeImage* of = world_.cluster.by_id(key_.image_id); at->left && of != nullptr)
    if (has_lock(*of, client_, serial_)) of->late_owner = client_;
  if (taken && exclusive_) {
    seen_version_ = 0;
    lock_took_ = at->taken - began;
  }
  co_return taken;
}

task<result<>> FakeOpened::take_lock(Until until, std::shared_ptr<LockTime> at) {
  co_return co_await ask("acquire lock", until,
                         [&world = world_, id = key_.image_id, by = client_, serial = serial_, gone = gone_,
                          seen = seen_version_, at]() -> result<> {
                           at->taken = world.loop().clock.now();
                           FakeImage* of = world.cluster.by_id(id);
                           if (of == nullptr) return Error{errc::not_found, "image " + id + " does not exist any more"};
                           // A close waits for it, and releases what it took.
                           if (*gone) return Error{errc::cancelled, "the image is closed"};
                           if (has_lock(*of, by, serial)) return {};
                           if (!of->exclusive) {
                             if (of->version != seen) return Error{errc::in_use, "the header has changed"};
                             of->writer = by;
                             of->writer_handle = serial;
                             of->writer_signs = true;
                             note_new_owner(world, *of);
                             of->changed();
                             return {};
                           }
                           // librbd would have a client without a watch cut off for too short a time.
                           if (!of->lock_owner.empty()) return Error{errc::in_use, "locked by " + of->lock_owner};
                           of->lock_owner = by;
                           of->lock_handle = serial;
                           // A taken lock needs no watch of its own any more.
                           if (of->lock_watcher == by) of->lock_watcher.clear();
                           of->late_owner = at->left || at->taken - at->began > plan::kProofLasts ? by : "";
                           note_new_owner(world, *of);
                           of->changed();
                           return {};
                         });
}

task<result<std::optional<std::uint64_t>>> FakeOpened::stamp(Until until) {
  const auto found = std::make_shared<std::uint64_t>(0);
  auto done = co_await ask("stamp", until, [&world = world_, id = key_.image_id, found]() -> result<> {
    FakeImage* of = world.cluster.by_id(id);
    if (of == nullptr) return Error{errc::not_found, "image " + id + " does not exist any more"};
    *found = of->modified = world.cluster.clock_of_osds();
    return {};
  });
  if (!done) co_return done.error();
  co_return std::optional(*found);
}

task<result<>> FakeOpened::keep_lock(Until until) {
  lock_kept_ = true;
  co_return co_await ask("keep lock", until,
                         [&world = world_, id = key_.image_id, by = client_, serial = serial_]() -> result<> {
                           FakeImage* of = world.cluster.by_id(id);
                           if (of != nullptr && of->writer == by && of->writer_handle == serial)
                             of->writer_handle = FakeImage::kKept;
                           if (of != nullptr && !of->exclusive) return {};
                           const bool again = of != nullptr && of->lock_watcher == by;
                           if (of == nullptr || of->lock_owner != by || !(again || has_lock(*of, by, serial)))
                             return Error{errc::failed_precondition, by + " does not hold the lock of image " + id};
                           of->lock_handle = FakeImage::kKept;
                           of->lock_watcher = by;
                           of->changed();
                           return {};
                         });
}

task<> FakeOpened::lock_taken_over(Until until) {
  static_cast<void>(
      co_await ask("end lock watch", until, [&world = world_, id = key_.image_id, by = client_]() -> result<> {
        world.cluster.end_lock_watch(id, by);
        return {};
      }));
}

task<result<>> FakeOpened::release_lock(Until until) {
  co_return co_await ask("release lock", until,
                         [&world = world_, id = key_.image_id, by = client_, serial = serial_]() -> result<> {
                           FakeImage* of = world.cluster.by_id(id);
                           if (of == nullptr || !has_lock(*of, by, serial))
                             return Error{errc::invalid_argument, by + " does not hold the lock of image " + id};
                           of->lock_owner.clear();
                           of->changed();
                           return {};
                         });
}

task<result<bool>> FakeOpened::has_data(Until until) {
  const auto found = std::make_shared<bool>(false);
  auto done = co_await ask("has data", until, [&world = world_, id = key_.image_id, found]() -> result<> {
    const FakeImage* of = world.cluster.by_id(id);
    if (of == nullptr) return Error{errc::not_found, "image " + id + " does not exist any more"};
    *found = of->data;
    return {};
  });
  if (!done) co_return done.error();
  co_return *found;
}

/// It waits for no other call on the image, and none waits for it.
task<result<std::optional<std::uint64_t>>> FakeOpened::used_bytes(Until until) {
  FakeImage* const mine = world_.cluster.by_id(key_.image_id);
  if (mine == nullptr || !mine->counts_used) co_return std::nullopt;
  const auto found = std::make_shared<std::optional<std::uint64_t>>();
  auto done = co_await world_.calls.ask_cluster("used bytes", client_, until,
                                                [&world = world_, id = key_.image_id, found]() -> result<> {
                                                  if (const FakeImage* of = world.cluster.by_id(id)) *found = of->used;
                                                  return {};
                                                });
  if (!done) co_return done.error();
  co_return *found;
}

task<result<std::optional<std::string>>> FakeOpened::metadata(std::string name, Until until) {
  const auto found = std::make_shared<std::optional<std::string>>();
  auto done = co_await ask("get metadata", until, [&world = world_, id = key_.image_id, name, found]() -> result<> {
    const FakeImage* of = world.cluster.by_id(id);
    if (of == nullptr) return Error{errc::not_found, "image " + id + " does not exist any more"};
    if (const auto place = of->metadata.find(name); place != of->metadata.end()) *found = place->second;
    return {};
  });
  if (!done) co_return done.error();
  co_return *found;
}

task<result<std::map<std::string, std::string>>> FakeOpened::metadata_below(std::string prefix, Until until) {
  const auto found = std::make_shared<std::map<std::string, std::string>>();
  auto done = co_await ask("list metadata", until, [&world = world_, id = key_.image_id, prefix, found]() -> result<> {
    const FakeImage* of = world.cluster.by_id(id);
    if (of == nullptr) return Error{errc::not_found, "image " + id + " does not exist any more"};
    for (const auto& [name, value] : of->metadata)
      if (name.starts_with(prefix)) found->insert({name, value});
    return {};
  });
  if (!done) co_return done.error();
  co_return *found;
}

task<result<>> FakeOpened::set_metadata(std::string name, std::string value, Until until) {
  co_return co_await ask("set metadata", until, [&world = world_, id = key_.image_id, name, value]() -> result<> {
    FakeImage* of = world.cluster.by_id(id);
    if (of == nullptr) return Error{errc::not_found, "image " + id + " does not exist any more"};
    of->metadata[name] = value;
    of->changed();
    return {};
  });
}

task<result<>> FakeOpened::remove_metadata(std::string name, Until until) {
  co_return co_await ask("remove metadata", until, [&world = world_, id = key_.image_id, name]() -> result<> {
    FakeImage* of = world.cluster.by_id(id);
    if (of == nullptr) return Error{errc::not_found, "image " + id + " does not exist any more"};
    of->metadata.erase(name);
    of->changed();
    return {};
  });
}

/// A close that was begun goes on, whatever its answer was: librbd releases the image at last.
void FakeOpened::close_later(World& world, const Handle& handle, int life) {
  constexpr std::chrono::milliseconds kSoonest{1};  // it asks again, so never at once
  const auto in = world.hazards == nullptr ? duration(std::chrono::milliseconds(100))
                                           : std::max<duration>(kSoonest, world.hazards->any(std::chrono::seconds(2)));
  world.loop().outside_in(in, [&world, handle, life] {
    if (!world.agent.lives(life)) return;
    if (world.cluster.dead || world.network.is_cut() || world.cluster.ticketless.contains(handle.client))
      return close_later(world, handle, life);
    close_now(world, handle);
  });
}

bool FakeOpened::only_closes() const {
  const FakeImage* of = world_.cluster.by_id(key_.image_id);
  return closing_ && (of == nullptr || (of->lock_owner != client_ && of->writer != client_));
}

task<result<>> FakeOpened::close(Until until) {
  closing_ = true;
  const Handle handle{key_.image_id, client_, serial_, gone_, lock_kept_};
  auto done = co_await ask("close image", until, [&world = world_, handle]() -> result<> {
    close_now(world, handle);
    return {};
  });
  // The handle of a client that is cut off is gone all the same.
  if (!done && done.error().code == errc::fenced) done = result<>();
  if (!done) close_later(world_, handle, world_.agent.life());
  if (done) closed_ = true;
  co_return done;
}

}  // namespace corbd::test
