// The cluster: clients, watches, locks, the blocklist, other nodes.
#include <algorithm>

#include "support/world_ports.hpp"

namespace corbd::test {
namespace {

constexpr std::chrono::seconds kWatch{30};

class Clusters final : public image::Clusters {
 public:
  explicit Clusters(World& world) : world_(world) {}

  task<result<image::Resolved>> resolve(image::Access access, image::Name name, Until until) override {
    const auto found = std::make_shared<image::Resolved>();
    note_options(access);
    const std::string by = world_.connection();
    if (auto admitted = world_.admits(by, access.key); !admitted) co_return admitted.error();
    auto done = co_await world_.ask_cluster("resolve", by, until, [&world = world_, access, name, found]() -> result<> {
      return find_image(world, access, name, *found);
    });
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<image::Resolved>> locate(image::Access access, image::Reserved reserved, std::string ns,
                                       Until until) override {
    const auto found = std::make_shared<image::Resolved>();
    note_options(access);
    const std::string by = world_.connection();
    if (auto admitted = world_.admits(by, access.key); !admitted) co_return admitted.error();
    auto done =
        co_await world_.ask_cluster("locate", by, until, [&world = world_, access, reserved, ns, found]() -> result<> {
          const auto pool = world.pools.find(reserved.pool_id);
          if (pool == world.pools.end())
            return Error{errc::not_found, "pool number " + std::to_string(reserved.pool_id) + " does not exist"};
          auto journal = world.journals.find({reserved.pool_id, reserved.uuid});
          if (journal == world.journals.end() || !journal->second.contains("csi.imagename"))
            for (const auto& [id, name] : world.pools)
              if (const auto other = world.journals.find({id, reserved.uuid});
                  name == reserved.journal_pool && other != world.journals.end())
                journal = other;
          const bool there = journal != world.journals.end();
          const bool named = there && journal->second.contains("csi.imagename");
          const std::string name = named                     ? journal->second["csi.imagename"]
                                   : !reserved.image.empty() ? reserved.image
                                                             : "csi-vol-" + reserved.uuid;
          if (auto image = find_image(world, access, {pool->second, ns, name}, *found); !image) return image;
          if (there && journal->second.contains("csi.volume.encryptKMS"))
            found->kms_id = journal->second.at("csi.volume.encryptKMS");
          if (there && journal->second.contains("csi.volume.encryptionType"))
            found->encryption_type = journal->second.at("csi.volume.encryptionType");
          if (there) journal->second.try_emplace("csi.imageid", found->key.image_id);
          return {};
        });
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> fence_dead(image::Access access, Until until) override {
    const std::string by = world_.connection();
    if (auto admitted = world_.admits(by, access.key); !admitted) co_return admitted.error();
    co_return co_await world_.ask_cluster("fence", by, until, [&world = world_]() -> result<> {
      for (auto& [address, state] : world.clients) {
        if (state != Client::dead) continue;
        world.blocklist(address);
        state = Client::fenced;
      }
      world.fenced_once = true;
      return {};
    });
  }

  task<result<>> inherit(image::Access, std::string address, Until until) override {
    co_return co_await world_.ask_node("inherit", until, [&world = world_, address]() -> result<> {
      for (const auto& [index, client] : world.others)
        if (client == address) world.broke("the client of a living rbd-nbd is to be fenced: " + address);
      world.clients.emplace(address, Client::dead);
      return {};
    });
  }

  task<result<image::Header>> header(image::Access access, image::Key key, Until until) override {
    const auto found = std::make_shared<image::Header>();
    const std::string by = world_.connection();
    if (auto admitted = world_.admits(by, access.key); !admitted) co_return admitted.error();
    auto done = co_await world_.ask_cluster("header", by, until, [&world = world_, key, found]() -> result<> {
      const FakeImage* image = world.by_id(key.image_id);
      if (image == nullptr) return Error{errc::not_found, "image " + key.text() + " does not exist any more"};
      *found = {image->version, image->break_mark};
      return {};
    });
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<std::unique_ptr<image::Image>>> open(image::Access access, image::Key key, image::OpenOptions options,
                                                   Until until) override {
    const std::string by = world_.connection();
    if (auto admitted = world_.admits(by, access.key); !admitted) co_return admitted.error();
    note_options(access);
    // A caller that left drops the image, which closes it.
    const auto opened = std::make_shared<std::unique_ptr<image::Image>>();
    auto done = co_await world_.ask_cluster(
        "open", by, until, [&world = world_, key, by, options, weak = std::weak_ptr(opened)]() -> result<> {
          const auto place = weak.lock();
          if (!place) return {};
          if (!world.fenced_once) world.broke("an image was opened before the dead incarnations were fenced");
          for (const auto& [address, state] : world.clients)
            if (state == Client::dead)
              return Error{errc::unavailable, "the dead client " + address + " is not fenced yet"};
          FakeImage* found = world.by_id(key.image_id);
          if (found == nullptr) return Error{errc::not_found, "image " + key.text() + " does not exist any more"};
          if (found->secondary)
            return Error{errc::failed_precondition,
                         "image " + key.text() + " is the mirror of another cluster's image"};
          *place = std::make_unique<World::FakeOpened>(world, *found, by, options);
          return {};
        });
    if (!done) co_return done.error();
    co_return std::move(*opened);
  }

  task<result<>> shutdown(Until) override { co_return result<>(); }

 private:
  static result<> find_image(const World& world, const image::Access& access, const image::Name& name,
                             image::Resolved& into) {
    const auto place = world.images.find(name.image);
    const bool there = place != world.images.end() && world.pools.contains(place->second.pool_id) &&
                       world.pools.at(place->second.pool_id) == name.pool;
    if (!there) return Error{errc::not_found, "image " + name.text() + " does not exist"};
    into.key = {"fsid", place->second.pool_id, name.ns, place->second.id, 0};
    into.size = place->second.size;
    into.exclusive_lock = place->second.exclusive;
    into.features = place->second.features;
    into.cluster_id = access.cluster_id;
    into.name = name;
    return {};
  }
  void note_options(const image::Access& access) {
    for (const auto& [name, value] : access.config) world_.options_asked.insert(name + "=" + value);
  }
  World& world_;
};

}  // namespace

std::unique_ptr<image::Clusters> make_clusters(World& world) { return std::make_unique<Clusters>(world); }

std::string World::connection() {
  // Shut without having done anything, and made anew.
  if (unwritten_.erase(client_) > 0) {
    clients.erase(client_);
    client_.clear();
  }
  if (client_.empty()) {
    client_ = node_address + ":0/" + std::to_string(++clients_made_);
    clients[client_] = Client::live;
    if (disk != Disk::good && (disk == Disk::read_only || spares-- <= 0)) unwritten_.insert(client_);
  }
  return client_;
}

result<> World::admits(const std::string& client, const Secret& key) const {
  if (key != cluster_key) return Error{errc::unauthenticated, "the cluster refuses the key"};
  if (unwritten_.contains(client)) return Error{errc::state_write, "writing the incarnation: the disk takes nothing"};
  return {};
}

/// The agent learned that this client of its own is cut off: the next call takes another.
void World::note_cut(const std::string& address) {
  const auto place = clients.find(address);
  if (place != clients.end() && place->second == Client::live) place->second = Client::dead;
  if (client_ == address) client_.clear();
  cut_.insert(address);
}

bool World::mark_refused(const std::string& image_id) const {
  return std::any_of(records.begin(), records.end(), [&](const auto& record) {
    const auto place = refused.find(record.volume_id);
    return record.key.image_id == image_id && place != refused.end() && place->second > 1;
  });
}

bool World::may_write(const FakeImage& image, const std::string& address) const {
  return !blocklisted.contains(address) && (!image.exclusive || image.shared || image.lock_owner == address);
}

void World::blocklist(const std::string& address) {
  if (!blocklisted.insert(address).second) return;
  trace("blocklisted " + address);
  for (auto& [name, image] : images) image.watchers.erase(address);
  for (const auto& [serial, image] : opened) {
    if (image->client() != address) continue;
    const auto told_in = hazards == nullptr ? duration::zero() : hazards->any(std::chrono::seconds(2));
    loop_.outside_in(told_in, [this, one = serial] {
      if (const auto place = opened.find(one); place != opened.end() && life_)
        place->second->cut_off("its client was cut off");
    });
  }
}

void World::expire_watches(std::set<std::string> of) {
  if (of.empty()) return;
  loop_.outside_in(kWatch, [this, of = std::move(of)] {
    for (auto& [name, image] : images)
      for (const auto& address : of) image.watchers.erase(address);
  });
}

void World::revive_cluster() {
  cluster_dead = false;
  trace("the cluster answers again");
  for (auto held = std::exchange(held_, {}); auto& work : held) work();
}

bool World::visit(FakeImage& image, const std::string& visitor, bool by_force) {
  if (cluster_dead) return false;
  if (image.exclusive && !image.shared && !image.lock_owner.empty()) {
    if (image.watchers.contains(image.lock_owner) && !by_force) return false;
    blocklist(image.lock_owner);
    image.changed();
  }
  trace("another node " + visitor + " writes into " + image.id);
  if (image.exclusive) image.lock_owner = visitor;
  image.watchers.insert(visitor);
  image.changed();
  ++image.visits;
  image.data = true;
  image.only_formatted = false;
  // It has such an agent too, and a raw block volume there: no format that was begun may be repeated.
  image.metadata.erase("corbd/format");
  if (image.exclusive && !image.taken) image.taken = loop_.clock.now();
  for (std::size_t block = image.visits % 2; block < kBlocks; block += 2) {
    image.blocks[block] = ++numbers_;
    image.acked[block] = 0;
  }
  return true;
}

void World::leave(FakeImage& image, const std::string& visitor, bool cleanly) {
  trace("the other node " + visitor + (cleanly ? " leaves " : " dies with ") + image.id);
  image.watchers.erase(visitor);
  if (!cleanly || image.lock_owner != visitor) return;
  image.lock_owner.clear();
  image.changed();
}

bool World::maintain(FakeImage& image, const std::string& by) {
  if (cluster_dead) return false;
  if (image.exclusive && !image.lock_owner.empty()) {
    if (image.watchers.contains(image.lock_owner)) return false;
    blocklist(image.lock_owner);
    // Without an orchestrator who takes the lock of a client that lived, and was cut off, is taken for a thief. The
    // agent may not have heard of it yet.
    const auto owner = clients.find(image.lock_owner);
    const bool lives = owner != clients.end() && owner->second == Client::live;
    if ((lives || cut_.contains(image.lock_owner)) && attachment.state == plan::Attachment::State::unknown &&
        !image.taken)
      image.taken = loop_.clock.now();
  }
  trace("a tool at " + by + " works on " + image.id);
  image.watchers.insert(by);
  if (image.exclusive) image.lock_owner = by;
  image.changed();
  return true;
}

void World::other_agent_waits(const std::string& name, const std::string& by, duration looks) {
  waiting_agents_.insert(by);
  other_agent_looks(name, by, looks);
}

void World::other_agent_looks(const std::string& name, const std::string& by, duration looks) {
  const auto place = images.find(name);
  if (place == images.end() || !waiting_agents_.contains(by)) return;
  const auto again = [this, name, by, looks](duration in) {
    loop_.outside_in(in, [=, this] { other_agent_looks(name, by, looks); });
  };
  if (cluster_dead) return again(std::chrono::seconds(5));
  place->second.watchers.insert(by);
  loop_.outside_in(looks, [=, this] {
    const auto still = images.find(name);
    if (still == images.end()) return;
    FakeImage& image = still->second;
    const bool alone = image.watchers.size() == 1;
    image.watchers.erase(by);
    if (!waiting_agents_.contains(by)) return;
    if (alone && visit(image, by, false)) {
      waiting_agents_.erase(by);
      other_agents.insert(by);
    } else {
      again(std::chrono::seconds(1) +
            (hazards == nullptr ? duration(std::chrono::milliseconds(700)) : hazards->any(std::chrono::seconds(2))));
    }
  });
}

void World::remove_image(const std::string& name) {
  const auto place = images.find(name);
  if (place == images.end() || !place->second.watchers.empty()) return;
  trace("image " + name + " is removed");
  // One that was taken from us before has been lost since then.
  removed_[place->second.id] = place->second.taken.value_or(loop_.clock.now());
  images.erase(place);
}

void World::resized(const std::string& image_id) {
  std::vector<int> told;
  for (const auto& [serial, image] : opened)
    if (image->key().image_id == image_id) told.push_back(serial);
  for (const int serial : told)
    if (const auto place = opened.find(serial); place != opened.end() && life_) place->second->resized();
}

std::optional<time_point> World::lost_since(const std::string& image_id) const {
  if (const auto place = removed_.find(image_id); place != removed_.end()) return place->second;
  for (const auto& [name, image] : images)
    if (image.id == image_id) return image.taken;
  return std::nullopt;
}

// --- Data ---------------------------------------------------------------------------------------

void World::submit(Work work) {
  using namespace std::chrono_literals;
  // An operation may lie queued at an OSD for long, also when its client is dead.
  duration takes = hazards == nullptr ? duration(1ms) : hazards->any(4ms) + 1us;
  if (hazards != nullptr && hazards->any(duration(20)).count() == 0) takes += hazards->any(8s);
  loop_.outside_in(takes + cluster_slow, [this, work = std::move(work)]() mutable { run_work(std::move(work)); });
}

void World::run_work(Work work) {
  if (cluster_dead) {
    held_.push_back([this, work = std::move(work)]() mutable { run_work(std::move(work)); });
    return;
  }
  FakeImage* image = by_id(work.image_id);
  if (image != nullptr && image->shared && !blocklisted.contains(work.client)) {
    image->lock_owner = work.client;
    image->lock_handle = 0;
  }
  int failed = 0;
  if (blocklisted.contains(work.client))
    failed = -ESHUTDOWN;
  else if (image == nullptr)
    failed = -ENOENT;
  else if (work.write && image->exclusive && image->lock_owner != work.client)
    failed = -EROFS;
  else if (odd_error != 0)
    failed = -odd_error;
  if (failed == 0 && work.write) stored(work, *image);
  if (failed == -ESHUTDOWN) note_cut(work.client);
  const std::uint64_t number = failed == 0 ? image->blocks[work.block] : 0;
  if (life_ && work.life == lives_) work.done(failed, number);
}

void World::stored(const Work& work, FakeImage& image) {
  const std::string where = "block " + std::to_string(work.block) + " of " + image.id;
  if (work.number < image.acked[work.block])
    broke("an acknowledged write was overwritten by an older one: " + where + " had " +
          std::to_string(image.acked[work.block]) + ", got " + std::to_string(work.number));
  const bool link_is_later = work.link_visits != work.device_visits;
  if (!image.shared && (link_is_later || (image.exclusive && image.visits != work.device_visits)))
    broke("a write from before another node's visit was replayed: " + where);
  image.blocks[work.block] = work.number;
  image.data = true;
  image.only_formatted = false;
  const auto complete = [](const plan::Staging& staging) { return staging.complete; };
  const auto staged = [&](const plan::Record& record) {
    return record.key.image_id == image.id && std::ranges::any_of(record.stagings, complete);
  };
  if (image.metadata.contains("corbd/format") && std::ranges::any_of(records, staged))
    broke("an application wrote into an image that may be formatted still: " + where);
}

}  // namespace corbd::test
