// Records and keys of the node: durable when a call says so, and perhaps when it failed.
#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

/// Checks the lock of the state directory. An agent that handed it over may not act on it any more, although its
/// process still has it.
void look_at_lock(World& world, const char* what) {
  if (!world.agent.has_lock())
    world.broke(std::string("a record was ") + what + " by an agent that has not the lock of the state directory");
}

class Store final : public volume::RecordStore {
 public:
  explicit Store(World& world) : world_(world) {}
  task<result<std::vector<plan::Record>>> peek(Until until) override {
    if (world_.disk.silent) {
      co_await sleep_until(world_.loop().control(), world_.loop().clock, until.deadline);
      co_return Error{errc::timed_out, "the records are not read yet"};
    }
    if (world_.disk.unreadable_record) co_return Error{errc::unavailable, "a record cannot be read"};
    auto seen = world_.disk.records;
    std::erase_if(seen, [&](const auto& record) {
      return world_.disk.newer_records.contains(record.volume_id) ||
             world_.disk.torn_records.contains(record.volume_id);
    });
    co_return seen;
  }
  task<result<volume::Loaded>> load() override {
    look_at_lock(world_, "read");
    if (world_.disk.unreadable_record) co_return Error{errc::unavailable, "a record cannot be read"};
    volume::Loaded loaded;
    for (const auto& record : world_.disk.records) {
      const bool newer = world_.disk.newer_records.contains(record.volume_id),
                 torn = world_.disk.torn_records.contains(record.volume_id);
      if (newer) loaded.newer.push_back(record.volume_id);
      if (torn) loaded.set_aside.push_back(record.volume_id);
      if (!newer && !torn) loaded.records.push_back(record);
    }
    std::erase_if(world_.disk.records,
                  [&](const auto& record) { return world_.disk.torn_records.contains(record.volume_id); });
    world_.disk.set_aside.insert(world_.disk.set_aside.end(), loaded.set_aside.begin(), loaded.set_aside.end());
    world_.disk.torn_records.clear();
    co_return loaded;
  }
  task<result<>> save(plan::Record record) override {
    for (const auto& known : world_.disk.records)
      if (known.volume_id == record.volume_id) record.user = known.user;
    return save(std::move(record), std::nullopt);
  }
  /// `key`: is written with it.
  task<result<>> save(plan::Record record, std::optional<Secret> key) {
    // Go through the bytes, so that a field that a record forgets is forgotten here too.
    auto kept = plan::decode(plan::encode(record));
    if (!kept) co_return kept.error();
    auto saved = co_await world_.calls.ask_node(
        "save record", {}, [&world = world_, kept = std::move(*kept), key]() -> result<> {
          look_at_lock(world, "written");
          if (world.agent.no_descriptor) return Error{errc::state_write, "too many open files"};
          if (world.disk.state != Disk::State::good) return Error{errc::state_write, "the disk takes nothing"};
          if (world.disk.newer_records.contains(kept.volume_id))
            return Error{errc::state_newer, "a newer version's record"};
          std::erase_if(world.disk.records, [&](const auto& known) { return known.volume_id == kept.volume_id; });
          world.disk.records.push_back(kept);
          world.disk.torn_records.erase(kept.volume_id);
          if (key) world.disk.keys[kept.volume_id] = *key;
          return {};
        });
    int& refused = world_.disk.refused[record.volume_id];
    refused = saved ? 0 : refused + 1;
    if (saved)
      world_.disk.outdated.erase(record.volume_id);
    else
      world_.disk.outdated.insert(record.volume_id);
    co_return saved;
  }
  task<result<>> drop(std::string id) override {
    co_return co_await world_.calls.ask_node("drop record", {}, [&world = world_, id]() -> result<> {
      look_at_lock(world, "dropped");
      if (world.disk.state == Disk::State::read_only) return Error{errc::state_write, "read-only file system"};
      std::erase_if(world.disk.records, [&](const auto& known) { return known.volume_id == id; });
      return {};
    });
  }
  task<result<>> save_with_key(plan::Record record, Secret key) override {
    const bool renamed = std::ranges::any_of(world_.disk.records, [&](const auto& known) {
      return known.volume_id == record.volume_id && known.user != record.user;
    });
    if (!renamed) {
      const std::string id = record.volume_id;
      auto saved = co_await world_.calls.ask_node("save key", {}, [&world = world_, id, key]() -> result<> {
        world.disk.keys[id] = key;
        return {};
      });
      if (!saved) co_return saved;
    }
    co_return co_await save(std::move(record), renamed ? std::optional(std::move(key)) : std::nullopt);
  }
  task<result<Secret>> load_key(const plan::Record& record) override {
    const auto place = world_.disk.keys.find(record.volume_id);
    if (place == world_.disk.keys.end())
      co_return Error{errc::not_found, "/keys/" + record.volume_id + " does not exist"};
    co_return place->second;
  }
  task<result<>> drop_key(std::string id) override {
    co_return co_await world_.calls.ask_node("drop key", {}, [&world = world_, id]() -> result<> {
      world.disk.keys.erase(id);
      return {};
    });
  }
  std::string busy_file(const std::string& id) const override { return "/busy/" + id; }

 private:
  World& world_;
};

}  // namespace

std::unique_ptr<volume::RecordStore> make_store(World& world) { return std::make_unique<Store>(world); }

task<result<std::optional<cephcsi::Stash>>> Disk::read_stash(World& by, std::string path) {
  const auto found = std::make_shared<std::optional<cephcsi::Stash>>();
  auto done = co_await by.calls.ask_node("read stash", {}, [this, path, found]() -> result<> {
    if (const auto place = stashes.find(path); place != stashes.end()) *found = place->second;
    return {};
  });
  if (!done) co_return done.error();
  co_return *found;
}

task<result<>> Disk::write_stash(World& by, std::string path, cephcsi::Stash stash) {
  // Go through the bytes, as ceph-csi would read them.
  auto kept = cephcsi::parse_stash(cephcsi::encode(stash));
  if (!kept) co_return kept.error();
  co_return co_await by.calls.ask_node("write stash", {}, [this, path, kept = std::move(*kept)]() -> result<> {
    stashes[path] = kept;
    return {};
  });
}

task<result<>> Disk::drop_stash(World& by, std::string path, std::string log) {
  co_return co_await by.calls.ask_node("drop stash", {}, [this, path, log]() -> result<> {
    stashes.erase(path);
    logs.erase(log);
    return {};
  });
}

bool Disk::break_record_refused(const std::string& image_id) const {
  return std::any_of(records.begin(), records.end(), [&](const auto& record) {
    const auto place = refused.find(record.volume_id);
    return record.key.image_id == image_id && place != refused.end() && place->second > 1;
  });
}

}  // namespace corbd::test
