// The world's cluster answers as a real one does, as far as the agent relies on it.
#include "support/cluster_contract.hpp"

#include "scene.hpp"
#include "support/world/pair.hpp"
#include "support/world/ports.hpp"

using namespace corbd;
using test::Pair;
using test::World;

namespace {

class FakeContractNode final : public test::ContractNode {
 public:
  FakeContractNode(Pair& pair, World& world) : pair_(pair), world_(world) {}
  ~FakeContractNode() override {
    clusters_.reset();
    if (world_.agent.running()) world_.agent.kill();
  }
  image::Clusters& clusters() override { return *clusters_; }
  executor control() override { return world_.loop().control(); }
  Until in(std::chrono::milliseconds time) override { return {pair_.now() + time, nullptr}; }
  bool drive(const std::function<bool()>& until, std::chrono::milliseconds at_most) override {
    const auto end = pair_.now() + at_most;
    while (!until() && pair_.now() < end) pair_.step(std::min(end, pair_.now() + std::chrono::seconds(1)));
    return until();
  }
  void start() {
    world_.agent.start();
    clusters_ = test::make_clusters(world_);
  }

 private:
  Pair& pair_;
  World& world_;
  std::unique_ptr<image::Clusters> clusters_;
};

class FakeStranger final : public test::ContractStranger {
 public:
  FakeStranger(test::Cluster& cluster, test::FakeImage& image) : cluster_(cluster), image_(image) {
    image_.watchers.insert(kAddress);
  }
  void take_lock() override { CHECK(cluster_.maintain(image_, kAddress)); }
  void write() override { CHECK(cluster_.visit(image_, kAddress, false)); }
  void close() override { cluster_.leave(image_, kAddress, true); }

 private:
  static inline const std::string kAddress = "192.0.2.9:0/9";
  test::Cluster& cluster_;
  test::FakeImage& image_;
};

class FakeContractCluster final : public test::ContractCluster {
 public:
  FakeContractCluster() {
    ours_.start();
    other_.start();
  }
  ~FakeContractCluster() override {
    for (const auto& rule : pair_.broken_rules()) FAIL_CHECK(rule);
  }
  image::Access access() override { return {"lab", {"10.0.0.9"}, "node", Secret("canary-key")}; }
  std::string pool() override { return "pool"; }
  test::ContractNode& ours() override { return ours_; }
  test::ContractNode& other() override { return other_; }
  void agent_dies(const std::string& name) override {
    const auto key = image::Key{"fsid", 1, "", image(name).id, 0};
    REQUIRE(ours_.run(ours_.clusters().fence_dead(access(), {})));
    auto opened = ours_.run(ours_.clusters().open(access(), key, {}, {}));
    REQUIRE(opened);
    REQUIRE(ours_.run((*opened)->ownership({})));
    REQUIRE(ours_.run((*opened)->acquire_lock({})));
    pair_.a.agent.kill();
    opened->reset();
    ours_.start();
  }
  std::unique_ptr<test::ContractStranger> opened_by_stranger(const std::string& name) override {
    return std::make_unique<FakeStranger>(pair_.cluster, image(name));
  }
  void create(const std::string& name, bool exclusive_lock) override {
    remove(name);
    auto& made = pair_.cluster.images[name];
    made.id = "id-" + std::to_string(++made_);
    made.exclusive = exclusive_lock;
    made.features = exclusive_lock ? 5 : 1;
  }
  void remove(const std::string& name) override { pair_.cluster.remove_image(name); }
  void resize(const std::string& name, std::uint64_t bytes) override {
    image(name).size = bytes;
    pair_.cluster.resized(image(name).id);
  }
  void lock_by_hand(const std::string& name) override {
    image(name).lock_by_hand = true;
    image(name).lock_by("192.0.2.8:0/8");
  }
  void cache_by_metadata(const std::string& name) override { image(name).cached = true; }
  void set_dirty_cache(const std::string& name, bool dirty) override {
    auto& features = image(name).features;
    features = dirty ? features | test::FakeImage::kDirtyCache : features & ~test::FakeImage::kDirtyCache;
    image(name).changed();
  }

 private:
  test::FakeImage& image(const std::string& name) { return pair_.cluster.images.at(name); }
  Pair pair_;
  FakeContractNode ours_{pair_, pair_.a}, other_{pair_, pair_.b};
  int made_ = 0;
};

}  // namespace

TEST_CASE("the world's cluster keeps the contract that real ones keep") {
  test::check_cluster_contract([] { return std::make_unique<FakeContractCluster>(); });
}
