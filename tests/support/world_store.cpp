// Records and keys of the node: durable when a call says so, and perhaps when it failed.
#include "support/world_ports.hpp"

namespace corbd::test {
namespace {

class Store final : public volume::RecordStore {
 public:
  explicit Store(World& world) : world_(world) {}
  task<result<volume::Loaded>> load() override {
    volume::Loaded loaded;
    for (const auto& record : world_.records) {
      const bool newer = world_.newer_records.contains(record.volume_id),
                 torn = world_.torn_records.contains(record.volume_id);
      if (newer) loaded.newer.push_back(record.volume_id);
      if (torn) loaded.set_aside.push_back(record.volume_id);
      if (!newer && !torn) loaded.records.push_back(record);
    }
    std::erase_if(world_.records, [&](const auto& record) { return world_.torn_records.contains(record.volume_id); });
    world_.set_aside.insert(world_.set_aside.end(), loaded.set_aside.begin(), loaded.set_aside.end());
    world_.torn_records.clear();
    co_return loaded;
  }
  task<result<>> save(plan::Record record) override {
    // Through the bytes, so that what a record forgets is forgotten here too.
    auto kept = plan::decode(plan::encode(record));
    if (!kept) co_return kept.error();
    auto saved = co_await world_.ask_node("save record", {}, [&world = world_, kept = std::move(*kept)]() -> result<> {
      if (world.no_descriptor) return Error{errc::state_write, "too many open files"};
      if (world.disk != World::Disk::good) return Error{errc::state_write, "the disk takes nothing"};
      if (world.newer_records.contains(kept.volume_id)) return Error{errc::state_newer, "a newer version's record"};
      std::erase_if(world.records, [&](const auto& known) { return known.volume_id == kept.volume_id; });
      world.records.push_back(kept);
      return {};
    });
    int& refused = world_.refused[record.volume_id];
    refused = saved ? 0 : refused + 1;
    co_return saved;
  }
  task<result<>> drop(std::string id) override {
    co_return co_await world_.ask_node("drop record", {}, [&world = world_, id]() -> result<> {
      if (world.disk == World::Disk::read_only) return Error{errc::state_write, "read-only file system"};
      std::erase_if(world.records, [&](const auto& known) { return known.volume_id == id; });
      return {};
    });
  }
  task<result<>> save_key(std::string id, Secret key) override {
    co_return co_await world_.ask_node("save key", {}, [&world = world_, id, key]() -> result<> {
      world.keys[id] = key;
      return {};
    });
  }
  task<result<Secret>> load_key(std::string id) override {
    const auto place = world_.keys.find(id);
    if (place == world_.keys.end()) co_return Error{errc::not_found, "no key"};
    co_return place->second;
  }
  task<result<>> drop_key(std::string id) override {
    co_return co_await world_.ask_node("drop key", {}, [&world = world_, id]() -> result<> {
      world.keys.erase(id);
      return {};
    });
  }
  std::string busy_file(const std::string& id) const override { return "/busy/" + id; }

 private:
  World& world_;
};

}  // namespace

std::unique_ptr<volume::RecordStore> make_store(World& world) { return std::make_unique<Store>(world); }

}  // namespace corbd::test
