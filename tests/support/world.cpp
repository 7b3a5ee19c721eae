#include "support/world.hpp"

#include <algorithm>

namespace corbd::test {
namespace {

class Image final : public image::Image {
 public:
  Image(World& world, FakeImage& of, bool read_only) : world_(world), of_(of), read_only_(read_only), client_(world.client()) {
    key_.fsid = "fsid";
    key_.pool_id = 1;
    key_.image_id = of.id;
    if (!read_only) of_.watchers.insert(client_);
    of_.mark = 0;
  }
  const image::Key& key() const override { return key_; }
  std::uint64_t size() const override { return of_.size; }
  bool read_only() const override { return read_only_; }
  bool exclusive_lock() const override { return of_.exclusive; }
  void read(image::Op& op, std::uint64_t, std::span<std::byte>) override { op.done(&op, 0); }
  void write(image::Op& op, std::uint64_t, std::span<const std::byte>) override { op.done(&op, 0); }
  void flush(image::Op& op) override { op.done(&op, 0); }
  void discard(image::Op& op, std::uint64_t, std::uint64_t) override { op.done(&op, 0); }
  void write_zeroes(image::Op& op, std::uint64_t, std::uint64_t) override { op.done(&op, 0); }

  task<result<image::Ownership>> ownership(Until) override {
    auto up = co_await world_.tick("ownership");
    if (!up) co_return up.error();
    image::Ownership found;
    using Lock = image::Ownership::Lock;
    found.owner = of_.lock_owner;
    found.version = of_.version;
    if (of_.lock_owner == client_) found.lock = Lock::mine;
    else if (world_.dead_incarnations.contains(of_.lock_owner)) found.lock = Lock::our_dead;
    else if (!of_.lock_owner.empty()) found.lock = Lock::other;
    for (const auto& watcher : of_.watchers)
      if (watcher != client_ && !world_.dead_incarnations.contains(watcher)) found.foreign_watchers.push_back(watcher);
    co_return found;
  }
  task<result<>> break_dead_lock(std::string owner, std::int64_t mark, Until) override {
    auto up = co_await world_.tick("break lock");
    if (!up) co_return up;
    if (!world_.blocklisted.contains(owner)) world_.broke("a lock was broken whose owner is not fenced");
    if (of_.lock_owner == owner) {
      of_.lock_owner.clear();
      of_.changed(mark);
    }
    co_return result<>();
  }
  task<result<>> acquire_lock(Until) override {
    if (of_.lock_owner == client_) co_return result<>();
    auto up = co_await world_.tick("acquire lock");
    if (!up) co_return up;
    if (!of_.lock_owner.empty()) co_return Error{errc::in_use, "locked"};
    of_.lock_owner = client_;
    of_.changed();
    co_return result<>();
  }
  task<result<>> release_lock(Until) override {
    of_.lock_owner.clear();
    of_.changed();
    co_return result<>();
  }
  task<result<bool>> has_data(Until) override {
    auto up = co_await world_.tick("has data");
    if (!up) co_return up.error();
    co_return of_.data;
  }
  task<result<std::optional<std::string>>> metadata(std::string name, Until) override {
    auto up = co_await world_.tick("get metadata");
    if (!up) co_return up.error();
    const auto place = of_.metadata.find(name);
    std::optional<std::string> value;
    if (place != of_.metadata.end()) value = place->second;
    co_return value;
  }
  task<result<>> set_metadata(std::string name, std::string value, Until) override {
    auto up = co_await world_.tick("set metadata");
    if (!up) co_return up;
    of_.metadata[name] = value;
    of_.changed();
    co_return result<>();
  }
  task<result<>> remove_metadata(std::string name, Until) override {
    auto up = co_await world_.tick("remove metadata");
    if (!up) co_return up;
    of_.metadata.erase(name);
    of_.changed();
    co_return result<>();
  }
  task<result<>> close(Until) override {
    auto up = co_await world_.tick("close image");
    if (!up) co_return up;
    of_.watchers.erase(client_);
    if (of_.lock_owner == client_) {
      of_.lock_owner.clear();
      of_.changed();
    }
    co_return result<>();
  }

 private:
  World& world_;
  FakeImage& of_;
  bool read_only_;
  std::string client_;
  image::Key key_;
};

class Clusters final : public image::Clusters {
 public:
  explicit Clusters(World& world) : world_(world) {}
  task<result<image::Resolved>> resolve(image::Access, image::Name name, Until) override {
    auto up = co_await world_.tick("resolve");
    if (!up) co_return up.error();
    const auto place = world_.images.find(name.image);
    if (place == world_.images.end()) co_return Error{errc::not_found, "image " + name.text() + " does not exist"};
    image::Resolved found;
    found.key.fsid = "fsid";
    found.key.pool_id = 1;
    found.key.image_id = place->second.id;
    found.size = place->second.size;
    found.exclusive_lock = place->second.exclusive;
    co_return found;
  }
  task<result<>> fence_dead(image::Access, Until) override {
    auto up = co_await world_.tick("fence");
    if (!up) co_return up;
    world_.blocklisted.insert(world_.dead_incarnations.begin(), world_.dead_incarnations.end());
    for (auto& [name, image] : world_.images)
      std::erase_if(image.watchers, [&](const auto& watcher) { return world_.blocklisted.contains(watcher); });
    fenced_ = true;
    co_return result<>();
  }
  task<result<image::Header>> header(image::Access, image::Key key, Until) override {
    auto up = co_await world_.tick("header");
    if (!up) co_return up.error();
    const FakeImage* found = world_.by_id(key.image_id);
    if (found == nullptr) co_return Error{errc::not_found, "image " + key.text() + " does not exist any more"};
    co_return image::Header{found->version, found->mark};
  }
  task<result<std::unique_ptr<image::Image>>> open(image::Access, image::Key key, image::OpenOptions options, Until) override {
    auto up = co_await world_.tick("open");
    if (!up) co_return up.error();
    if (!fenced_) world_.broke("an image was opened before the dead incarnations were fenced");
    FakeImage* found = world_.by_id(key.image_id);
    if (found == nullptr) co_return Error{errc::not_found, "image " + key.text() + " does not exist any more"};
    std::unique_ptr<image::Image> opened = std::make_unique<Image>(world_, *found, options.read_only);
    co_return opened;
  }
  task<result<>> shutdown(Until) override { co_return result<>(); }

 private:
  World& world_;
  bool fenced_ = false;
};

class Link final : public device::Link {
 public:
  explicit Link(image::Image& image) : image_id(image.key().image_id) {}
  State state() const override { return state_; }
  int error() const override { return 0; }
  void shut() override { state_ = State::closed; }
  void hold() override { state_ = State::held; }
  task<Waited> idle(Until) override { co_return Waited::ready; }
  task<Waited> drain(Until) override { co_return Waited::ready; }
  std::uint64_t in_flight() const override { return 0; }
  duration oldest() const override { return {}; }
  const std::string image_id;

 private:
  State state_ = State::serving;
};

class Devices final : public device::Devices {
 public:
  explicit Devices(World& world) : world_(world) {}
  result<> ready() const override { return {}; }
  result<std::vector<device::Seen>> inventory() const override {
    std::vector<device::Seen> all;
    for (const auto& known : world_.devices) {
      device::Seen seen;
      seen.index = known.index;
      seen.backend = known.backend;
      seen.size = known.size;
      seen.dev_major = 43;
      seen.dev_minor = known.index * 32;
      seen.io_timeout_ms = known.io_timeout_ms;
      all.push_back(seen);
    }
    return all;
  }
  result<std::unique_ptr<device::Link>> serve(image::Image& image, bool read_only, std::function<void()>) override {
    const FakeImage* of = dynamic_cast<Image*>(&image) == nullptr ? nullptr : world_.by_id(image.key().image_id);
    if (read_only != image.read_only()) world_.broke("a session and its image differ in what may be written");
    if (of != nullptr && of->exclusive && !read_only && of->lock_owner != world_.client()) world_.broke("a session was started without the lock");
    std::unique_ptr<device::Link> link = std::make_unique<Link>(image);
    return link;
  }
  task<result<std::uint32_t>> connect(device::Link& link, device::ConnectArgs args, Until) override {
    auto up = co_await world_.tick("kernel connect");
    if (!up) co_return up.error();
    for (const auto& known : world_.devices)
      if (known.backend == args.backend) world_.broke("a second device was made for one volume");
    KernelDevice made;
    while (world_.by_index(made.index) != nullptr) ++made.index;
    made.backend = args.backend;
    made.size = args.size;
    made.read_only = args.read_only;
    made.image_id = static_cast<Link&>(link).image_id;
    made.alive = true;
    world_.devices.push_back(made);
    co_return made.index;
  }
  task<result<>> reconnect(device::Link& link, std::uint32_t index, std::string backend, std::uint64_t, Until) override {
    auto up = co_await world_.tick("kernel reconfigure");
    if (!up) co_return up;
    KernelDevice* known = world_.by_index(index);
    if (known == nullptr || known->backend != backend) co_return Error{errc::not_found, "no such device"};
    if (known->alive) co_return Error{errc::unavailable, "the old link lives"};
    if (known->image_id != static_cast<Link&>(link).image_id) world_.broke("a device got another image behind it");
    known->alive = true;
    co_return result<>();
  }
  task<result<>> resize(device::Link& link, std::uint32_t index, std::string backend, std::uint64_t bytes, Until) override {
    auto up = co_await world_.tick("kernel resize");
    if (!up) co_return up;
    KernelDevice* known = world_.by_index(index);
    if (known == nullptr || known->backend != backend) co_return Error{errc::not_found, "no such device"};
    if (!known->alive || link.state() != Link::State::serving) world_.broke("a device was resized on a dead link");
    if (bytes < known->size) world_.broke("a device was made smaller");
    known->size = bytes;
    co_return result<>();
  }
  task<result<>> disconnect(std::uint32_t index, Until) override {
    auto up = co_await world_.tick("disconnect");
    if (!up) co_return up;
    for (const auto& mount : world_.mounts)
      if (mount.dev_major == 43 && mount.dev_minor == index * 32) world_.broke("a mounted device was disconnected");
    std::erase_if(world_.devices, [&](const auto& known) { return known.index == index; });
    co_return result<>();
  }
  void on_link_dead(std::function<void(std::uint32_t)>) override {}

 private:
  World& world_;
};

std::uint32_t index_of(const std::string& device) { return static_cast<std::uint32_t>(std::stoul(device.substr(8))); }

class Mounts final : public host::Mounts {
 public:
  explicit Mounts(World& world) : world_(world) {}
  result<std::vector<host::Mount>> table() const override { return world_.mounts; }
  task<result<>> mount(std::string device, std::string fstype, std::string target, std::string flags, std::string, Until) override {
    auto up = co_await world_.tick("mount");
    if (!up) co_return up;
    KernelDevice* on = world_.by_index(index_of(device));
    if (on != nullptr && on->read_only && ("," + flags + ",").find(",ro,") == std::string::npos) co_return Error{errc::failed_precondition, "read-only device"};
    if (on == nullptr || !on->alive) world_.broke("a device without a live link was used");
    const FakeImage* image = on == nullptr ? nullptr : world_.by_id(on->image_id);
    if (image == nullptr || image->fstype != fstype) co_return Error{errc::failed_precondition, "wrong fs type"};
    add(target, on->index, fstype, "/");
    co_return result<>();
  }
  task<result<>> bind(std::string source, std::string target, bool device_node, std::string, std::string, Until) override {
    auto up = co_await world_.tick("bind");
    if (!up) co_return up;
    if (source.starts_with("/dev/")) {
      add(target, index_of(source), "devtmpfs", "/" + source.substr(5));
      co_return result<>();
    }
    for (const auto& mount : world_.mounts)
      if (mount.target == source) {
        host::Mount copy = mount;
        copy.target = target;
        world_.mounts.push_back(copy);
        co_return result<>();
      }
    (void)device_node;
    world_.broke("something that is not mounted was published");
    co_return result<>();
  }
  task<result<>> unmount(std::string target, std::string, Until) override {
    auto up = co_await world_.tick("unmount");
    if (!up) co_return up;
    std::erase_if(world_.mounts, [&](const auto& mount) { return mount.target == target; });
    co_return result<>();
  }

 private:
  void add(const std::string& target, std::uint32_t index, const std::string& fstype, const std::string& root) {
    host::Mount made;
    made.target = target;
    made.fstype = fstype;
    made.root = root;
    if (fstype != "devtmpfs") {
      made.dev_major = 43;
      made.dev_minor = index * 32;
    }
    world_.mounts.push_back(made);
  }
  World& world_;
};

class Filesystems final : public host::Filesystems {
 public:
  explicit Filesystems(World& world) : world_(world) {}
  task<result<host::Probe>> probe(std::string device, std::string, Until) override {
    auto up = co_await world_.tick("probe");
    if (!up) co_return up.error();
    host::Probe found;
    found.kind = image(device).content;
    found.type = image(device).fstype;
    co_return found;
  }
  task<result<>> mkfs(std::string device, std::string fstype, std::string, std::string, Until) override {
    FakeImage& on = image(device);
    if (world_.by_index(index_of(device))->read_only) world_.broke("a read-only device was formatted");
    if (on.content != host::Probe::Kind::nothing) world_.broke("a device with a signature was formatted");
    if (on.data && !on.metadata.contains("corbd/format")) world_.broke("an image with data was formatted");
    on.data = true;  // a crash in the middle leaves extents and no signature
    auto up = co_await world_.tick("mkfs");
    if (!up) co_return up;
    on.content = host::Probe::Kind::filesystem;
    on.fstype = fstype;
    ++on.generation;
    co_return result<>();
  }
  task<result<>> fsck(std::string device, std::string, Until) override {
    auto up = co_await world_.tick("fsck");
    if (!up) co_return up;
    const auto index = index_of(device);
    if (world_.by_index(index)->read_only) world_.broke("a read-only device was repaired");
    for (const auto& mount : world_.mounts)
      if (mount.dev_major == 43 && mount.dev_minor == index * 32) world_.broke("a mounted filesystem was repaired");
    ++image(device).checks;
    co_return result<>();
  }
  task<result<>> check_unused(std::string device, std::string, Until) override {
    auto up = co_await world_.tick("check unused");
    if (!up) co_return up;
    const auto index = index_of(device);
    for (const auto& mount : world_.mounts)
      if (mount.dev_major == 43 && mount.dev_minor == index * 32) co_return Error{errc::in_use, "mounted"};
    co_return result<>();
  }
  task<result<>> tune(std::string kernel_name, std::string, Until) override {
    auto up = co_await world_.tick("tune");
    if (!up) co_return up;
    if (auto* on = world_.by_index(index_of("/dev/" + kernel_name))) on->io_timeout_ms = 1000;
    co_return result<>();
  }

 private:
  FakeImage& image(const std::string& device) {
    KernelDevice* on = world_.by_index(index_of(device));
    if (on == nullptr || !on->alive) world_.broke("a device without a live link was used");
    return *world_.by_id(on->image_id);
  }
  World& world_;
};

class Store final : public volume::RecordStore {
 public:
  explicit Store(World& world) : world_(world) {}
  task<result<volume::Loaded>> load() override {
    volume::Loaded loaded;
    loaded.records = world_.records;
    co_return loaded;
  }
  task<result<>> save(volume::Record record) override {
    auto up = co_await world_.tick("save record");
    if (!up) co_return up;
    // Through the bytes, so that what a record forgets is forgotten here too.
    auto kept = volume::decode(volume::encode(record));
    if (!kept) co_return kept.error();
    std::erase_if(world_.records, [&](const auto& known) { return known.volume_id == record.volume_id; });
    world_.records.push_back(std::move(*kept));
    co_return result<>();
  }
  task<result<>> drop(std::string id) override {
    auto up = co_await world_.tick("drop record");
    if (!up) co_return up;
    std::erase_if(world_.records, [&](const auto& known) { return known.volume_id == id; });
    co_return result<>();
  }
  task<result<>> save_key(std::string id, Secret key) override {
    auto up = co_await world_.tick("save key");
    if (!up) co_return up;
    world_.keys[id] = key;
    co_return result<>();
  }
  task<result<Secret>> load_key(std::string id) override {
    const auto place = world_.keys.find(id);
    if (place == world_.keys.end()) co_return Error{errc::not_found, "no key"};
    co_return place->second;
  }
  task<result<>> drop_key(std::string id) override {
    auto up = co_await world_.tick("drop key");
    if (!up) co_return up;
    world_.keys.erase(id);
    co_return result<>();
  }
  std::string busy_file(const std::string& id) const override { return "/busy/" + id; }

 private:
  World& world_;
};

task<result<>> any_path(std::string, bool) { co_return result<>(); }

}  // namespace

struct World::Ports {
  explicit Ports(World& world)
      : clusters(world), devices(world), mounts(world), filesystems(world), store(world) {}
  Clusters clusters;
  Devices devices;
  Mounts mounts;
  Filesystems filesystems;
  Store store;
};

task<result<>> World::tick(std::string what) {
  ++calls;
  if (crash_at > 0 && --crash_at == 0) throw Crash();
  if (what == crash_in) {
    crash_in.clear();
    throw Crash();
  }
  if (fail_at > 0 && --fail_at == 0) co_return with_context(what, error);
  co_await sleep_until(loop_.control(), loop_.clock, loop_.clock.now() + std::chrono::milliseconds(1));
  co_return result<>();
}

FakeImage* World::by_id(const std::string& image_id) {
  for (auto& [name, image] : images)
    if (image.id == image_id) return &image;
  return nullptr;
}

KernelDevice* World::by_index(std::uint32_t index) {
  for (auto& known : devices)
    if (known.index == index) return &known;
  return nullptr;
}

void World::start_agent() {
  ++life_;
  ports_ = std::make_shared<Ports>(*this);
  const auto find_cluster = [](const std::string& id) -> result<volume::Cluster> {
    if (id != "lab") return Error{errc::not_found, "no cluster " + id};
    return volume::Cluster{{"10.0.0.9"}, ""};
  };
  volume::Config config;
  config.boot_id = boot_id;
  config.policy.driver = "rbd.csi.ceph.com";
  config.policy.heal_without_proof = heal_without_proof;
  volume::Ports ports{ports_->clusters, ports_->devices, ports_->mounts, ports_->filesystems, ports_->store, find_cluster, any_path,
                      [](const std::string&) { return false; }};
  shell_ = std::make_unique<volume::Shell>(loop_.control(), loop_.clock, ports, config);
  const auto started = loop_.run(shell_->start());
  if (!started) throw std::runtime_error(started.error().text);
}

void World::kill_agent() {
  shell_.reset();
  loop_.poll();
  ports_.reset();
  for (auto& known : devices) known.alive = false;
  dead_incarnations.insert(client());
}

result<> World::want(const std::string& id, volume::Wish wish) { return loop_.run(shell_->want(id, std::move(wish), {})); }

volume::Staged staged_wish(const std::string& image) {
  volume::Staged wish;
  wish.path = "/kubelet/staging/" + image;
  wish.capability.fstype = "ext4";
  wish.source.cluster_id = "lab";
  wish.source.pool = "pool";
  wish.source.image = image;
  wish.user = "node";
  wish.key = Secret("canary-key");
  return wish;
}

}  // namespace corbd::test
