// Implements the agent's port to the cluster: names, headers, fences, and images to open.
#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

class Clusters final : public image::Clusters {
 public:
  explicit Clusters(World& world) : world_(world) {}

  task<result<image::Resolved>> resolve(image::Access access, image::Name name, Until until) override {
    const auto found = std::make_shared<image::Resolved>();
    note_options(access);
    const std::string by = world_.agent.connection(access);
    if (auto admitted = admits(by, access); !admitted) co_return admitted.error();
    auto done = co_await world_.calls.ask_cluster(
        "resolve", by, until,
        [&world = world_, access, name, found]() -> result<> { return find_image(world, access, name, *found); });
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<std::string>> setting(image::Access, std::string name, Until) override {
    co_return name == "rbd_default_map_options" ? world_.cluster.default_map_options : "";
  }

  task<result<image::Resolved>> locate(image::Access access, image::Reserved reserved, std::string ns,
                                       Until until) override {
    const auto found = std::make_shared<image::Resolved>();
    note_options(access);
    const std::string by = world_.agent.connection(access);
    if (auto admitted = admits(by, access); !admitted) co_return admitted.error();
    auto done = co_await world_.calls.ask_cluster(
        "locate", by, until, [&world = world_, access, reserved, ns, found]() -> result<> {
          const auto pool = world.cluster.pools.find(reserved.pool_id);
          if (pool == world.cluster.pools.end())
            return Error{errc::not_found, "pool number " + std::to_string(reserved.pool_id) + " does not exist"};
          auto journal = world.cluster.journals.find({reserved.pool_id, reserved.uuid});
          if (journal == world.cluster.journals.end() || !journal->second.contains("csi.imagename"))
            for (const auto& [id, name] : world.cluster.pools)
              if (const auto other = world.cluster.journals.find({id, reserved.uuid});
                  name == reserved.journal_pool && other != world.cluster.journals.end())
                journal = other;
          const bool there = journal != world.cluster.journals.end();
          const bool named = there && journal->second.contains("csi.imagename");
          const std::string name = named                     ? journal->second["csi.imagename"]
                                   : !reserved.image.empty() ? reserved.image
                                                             : "csi-vol-" + reserved.uuid;
          if (auto image = find_image(world, access, {pool->second, ns, name}, *found); !image) return image;
          if (there && journal->second.contains("csi.volume.encryptKMS"))
            found->kms_id = journal->second.at("csi.volume.encryptKMS");
          if (there && journal->second.contains("csi.volume.encryptionType"))
            found->encryption_type = journal->second.at("csi.volume.encryptionType");
          if (there && journal->second.contains("csi.volume.owner"))
            found->tenant = journal->second.at("csi.volume.owner");
          if (there) journal->second.try_emplace("csi.imageid", found->key.image_id);
          return {};
        });
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> fence_dead(image::Access access, Until until) override {
    const std::string by = world_.agent.connection(access);
    if (auto admitted = admits(by, access); !admitted) co_return admitted.error();
    if (auto known = world_.agent.knows_before(); !known) co_return known;
    co_return co_await world_.calls.ask_cluster("fence", by, until, [&world = world_]() -> result<> {
      for (auto& [address, state] : world.agent.clients) {
        if (state != Client::dead || world.agent.yields(address)) continue;
        world.cluster.blocklist(address);
        state = Client::fenced;
      }
      world.agent.fenced_once = true;
      return {};
    });
  }

  task<result<>> inherit(image::Access access, std::string address, Until until) override {
    if (auto admitted = admits(world_.agent.connection(access), access); !admitted) co_return admitted.error();
    co_return co_await world_.calls.ask_node("inherit", until, [&world = world_, address]() -> result<> {
      for (const auto& [index, client] : world.ceph_csi.daemons)
        if (client == address) world.broke("the client of a living rbd-nbd is to be fenced: " + address);
      world.agent.clients.emplace(address, Client::dead);
      return {};
    });
  }

  task<result<image::Header>> header(image::Access access, image::Key key, Until until) override {
    const auto found = std::make_shared<image::Header>();
    const std::string by = world_.agent.connection(access);
    if (auto admitted = admits(by, access); !admitted) co_return admitted.error();
    if (auto may = has_rights(access, false); !may) co_return may.error();
    auto done = co_await world_.calls.ask_cluster("header", by, until, [&world = world_, key, found]() -> result<> {
      const FakeImage* image = world.cluster.by_id(key.image_id);
      if (image == nullptr) return Error{errc::not_found, "image " + key.text() + " does not exist any more"};
      *found = {image->version, image->break_time, {image->features, 0}};
      return {};
    });
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> may_write(image::Access access, image::Key key, Until until) override {
    const std::string by = world_.agent.connection(access);
    if (auto admitted = admits(by, access); !admitted) co_return admitted.error();
    if (auto may = has_rights(access, true); !may) co_return may.error();
    co_return co_await world_.calls.ask_cluster("may write", by, until, [&world = world_, key]() -> result<> {
      if (world.cluster.by_id(key.image_id) != nullptr) return {};
      return Error{errc::not_found, "image " + key.text() + " does not exist any more"};
    });
  }

  task<result<std::unique_ptr<image::Image>>> open(image::Access access, image::Key key, image::OpenOptions options,
                                                   Until until) override {
    const std::string by = world_.agent.connection(access);
    if (auto admitted = admits(by, access); !admitted) co_return admitted.error();
    if (auto may = has_rights(access, !options.read_only); !may) co_return may.error();
    if (auto known = world_.agent.knows_before(); !known) co_return known.error();
    note_options(access);
    // The watch that an open for writing sets is a write.
    while (!options.read_only && world_.cluster.full_pools.contains(key.pool_id)) {
      const auto next = world_.loop().clock.now() + std::chrono::milliseconds(100);
      const Waited how = co_await sleep_until(world_.loop().control(), world_.loop().clock,
                                              std::min(next, until.deadline), until.scope);
      if (how == Waited::cancelled || world_.loop().clock.now() >= until.deadline) co_return wait_error(how, "open");
    }
    if (!options.read_only)
      if (auto recorded = world_.agent.record(by); !recorded) co_return recorded.error();
    // A caller that left drops the image, which closes it.
    const auto opened = std::make_shared<std::unique_ptr<image::Image>>();
    auto done = co_await world_.calls.ask_cluster(
        "open", by, until, [&world = world_, key, by, options, weak = std::weak_ptr(opened)]() -> result<> {
          const auto place = weak.lock();
          if (!place) return {};
          // The agent opens it to read once, beside a serving agent.
          const bool warms = world.agent.beside() && options.read_only;
          if (!world.agent.fenced_once && !warms)
            world.broke("an image was opened before the dead incarnations were fenced");
          for (const auto& [address, state] : world.agent.clients)
            if (state == Client::dead && !world.agent.yields(address) && !warms)
              return Error{errc::unavailable, "the dead client " + address + " is not fenced yet"};
          FakeImage* found = world.cluster.by_id(key.image_id);
          if (found == nullptr) return Error{errc::not_found, "image " + key.text() + " does not exist any more"};
          if (auto refused = why_refused(*found, options, world.cluster.pools_cache)) return *std::move(refused);
          *place = std::make_unique<FakeOpened>(world, *found, by, options);
          return {};
        });
    if (!done) co_return done.error();
    co_return std::move(*opened);
  }

  task<result<std::optional<std::string>>> why_full(image::Access, std::int64_t pool_id, Until until) override {
    const auto found = std::make_shared<std::optional<std::string>>();
    auto done = co_await world_.calls.ask_cluster("why full", "", until,
                                                  [&cluster = world_.cluster, pool_id, found]() -> result<> {
                                                    if (cluster.full_pools.contains(pool_id))
                                                      *found = "pool " + cluster.pools.at(pool_id) + " is full";
                                                    return {};
                                                  });
    if (!done) co_return done.error();
    co_return *found;
  }

  void retire_all(const image::Access& access) override { world_.agent.retire_all(access); }

  task<result<>> may_serve_anew(image::Access access, image::Key key, bool writes, Until until) override {
    if (auto admitted = admits(world_.agent.connection(access), access); !admitted) co_return admitted;
    co_return co_await world_.calls.ask_cluster(
        "may serve anew", "", until, [&world = world_, may = has_rights(access, writes), key]() -> result<> {
          if (!may || world.cluster.by_id(key.image_id) != nullptr) return may;
          return Error{errc::not_found, "image " + key.text() + " does not exist any more"};
        });
  }

  std::optional<std::string> fsid_of(const std::vector<std::string>& monitors) const override {
    return connected_.contains(monitors) ? std::optional<std::string>("fsid") : std::nullopt;
  }

  task<result<>> prepare(image::Access access, std::size_t, Until) override {
    if (world_.cluster.dead) co_return Error{errc::unreachable, "the monitors of the cluster do not answer"};
    auto admitted = admits(world_.agent.connection(access), access);
    if (const auto happens = world_.calls.before_call; happens && !admitted) happens("connect in vain");
    co_return admitted;
  }
  task<> record_prepared(Until) override {
    for (const auto& by : world_.agent.connections()) static_cast<void>(world_.agent.record(by));
    co_return;
  }
  std::optional<std::string> cannot_fence(const image::Access& access) const override {
    const auto place = world_.cluster.cannot_fence.find(access.user);
    return place == world_.cluster.cannot_fence.end() ? std::nullopt : std::optional(place->second);
  }

  task<result<>> reload_predecessor_clients(bool ended) override {
    co_return world_.agent.reload_predecessor_clients(ended);
  }

  task<result<image::ImageUsers>> users(image::Access, std::int64_t, std::string, Until) override {
    co_return image::ImageUsers();
  }
  task<result<image::Blocklist>> blocklist(image::Access access, Until until) override {
    if (auto admitted = world_.agent.admits_to_monitors(access); !admitted) co_return admitted.error();
    const auto found = std::make_shared<image::Blocklist>();
    auto done = co_await world_.calls.ask_cluster("blocklist", "", until, [&world = world_, found]() -> result<> {
      found->fsid = "fsid";
      for (const auto& [client, end] : world.cluster.blocklisted) {
        if (!world.cluster.has_entry(client)) continue;
        auto entry = image::entry_of_client(client);
        if (!entry) return entry.error();
        const auto by_monitors = end.time_since_epoch() + world.cluster.monitors_ahead;
        entry->until = std::chrono::system_clock::time_point(
            std::chrono::duration_cast<std::chrono::system_clock::duration>(by_monitors));
        found->entries.push_back(std::move(*entry));
      }
      for (const auto& host : world.cluster.fenced_hosts) {
        const auto address = image::AddressBlock::host_of_client(host + ":0/0");
        if (!address) return address.error();
        found->entries.push_back(image::entry_of_host(*address));
      }
      return {};
    });
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<std::vector<result<>>>> block(image::Access access, std::vector<image::BlocklistEntry> entries,
                                            std::chrono::seconds lasts, Until until) override {
    if (auto admitted = world_.agent.admits_to_monitors(access); !admitted) co_return admitted.error();
    auto done = co_await world_.calls.ask_cluster("block", "", until, [&world = world_, entries, lasts]() -> result<> {
      for (const auto& entry : entries) {
        const bool fenced = world.cluster.fenced_hosts.contains(std::string(image::host_of(entry.client)));
        const bool cut_off = fenced || world.cluster.has_entry(entry.client);
        if (world.cluster.living.contains(entry.client) && !cut_off)
          world.broke("a client that lives, on a node that is not off, was cut off: " + entry.client);
        world.cluster.keep_blocked(entry.client, lasts);
      }
      return {};
    });
    if (!done) co_return done.error();
    co_return std::vector<result<>>(entries.size(), result<>());
  }

  task<result<std::vector<result<>>>> unblock(image::Access, std::vector<image::BlocklistEntry> entries,
                                              Until) override {
    world_.broke("the agent unfences by itself");
    co_return std::vector<result<>>(entries.size(), result<>());
  }

  task<result<>> shutdown(Until, Until) override { co_return result<>(); }

 private:
  /// A client that is admitted has a connection.
  result<> admits(const std::string& by, const image::Access& access) {
    auto admitted = world_.agent.admits(by, access);
    if (admitted) connected_.insert(access.monitors);
    if (admitted) world_.cluster.sessions.try_emplace(by, access.user);
    return admitted;
  }
  static result<> find_image(const World& world, const image::Access& access, const image::Name& name,
                             image::Resolved& into) {
    const auto place = world.cluster.images.find(name.image);
    const bool there = place != world.cluster.images.end() && world.cluster.pools.contains(place->second.pool_id) &&
                       world.cluster.pools.at(place->second.pool_id) == name.pool;
    if (!there) return Error{errc::not_found, "image " + name.text() + " does not exist"};
    into.key = {"fsid", place->second.pool_id, name.ns, place->second.id, 0};
    into.size = place->second.size;
    into.exclusive_lock = place->second.exclusive;
    into.features.bits = place->second.features;
    into.cluster_id = access.cluster_id;
    into.name = name;
    for (const auto& [entry, value] : place->second.metadata)
      if (entry.starts_with(image::kProvisionedFor)) into.provisioned_for[entry] = value;
    return {};
  }
  result<> has_rights(const image::Access& access, bool writes) const {
    if (world_.cluster.without_caps.contains(access.user))
      return Error{errc::permission_denied, "user " + access.user + " has no rights"};
    if (!writes || !world_.cluster.readers.contains(access.user)) return {};
    return Error{errc::permission_denied, "user " + access.user + " may only read"};
  }
  void note_options(const image::Access& access) {
    for (const auto& [name, value] : access.config) world_.cluster.options_asked.insert(name + "=" + value);
  }
  World& world_;
  std::set<std::vector<std::string>> connected_;  ///< by monitors: connected to the only cluster
};

}  // namespace

std::unique_ptr<image::Clusters> make_clusters(World& world) { return std::make_unique<Clusters>(world); }

}  // namespace corbd::test
