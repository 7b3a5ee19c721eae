// A real cluster keeps the contract that the fake one of tests/sim keeps.
#include "rbd_lab.hpp"
#include "support/cluster_contract.hpp"

using namespace corbd;
using namespace corbd::lab;

namespace {

class RealNode final : public test::ContractNode {
 public:
  image::Clusters& clusters() override { return *agent_->clusters; }
  executor control() override { return agent_->io().get_executor(); }
  Until in(std::chrono::milliseconds time) override { return agent_->in(time); }
  bool drive(const std::function<bool()>& until, std::chrono::milliseconds at_most) override {
    const auto end = std::chrono::steady_clock::now() + at_most;
    while (!until() && std::chrono::steady_clock::now() < end) agent_->io().run_one_for(100ms);
    return until();
  }
  /// A whole agent takes the lock and is killed: that of "a child agent that writes until it is killed".
  void dies_with(const std::string& image) {
    agent_.reset();
    ::setenv("CORBD_LAB_CHILD_IMAGES", image.c_str(), 1);
    Child(folder_.path(), "[child]").kill();
    agent_ = std::make_unique<Agent>(folder_.path() + "/incarnations");
  }

 private:
  const test::Folder folder_;
  std::unique_ptr<Agent> agent_ = std::make_unique<Agent>(folder_.path() + "/incarnations");
};

class RealStranger final : public test::ContractStranger {
 public:
  explicit RealStranger(const std::string& image) : image_(by_.open(image)) {}
  ~RealStranger() override { close(); }
  void take_lock() override { Admin::check(rbd_lock_acquire(image_, RBD_LOCK_MODE_EXCLUSIVE)); }
  void write() override {
    const auto bytes = pattern(4096, 1);
    Admin::check(static_cast<int>(rbd_write(image_, 0, bytes.size(), reinterpret_cast<const char*>(bytes.data()))));
  }
  void close() override {
    if (image_ != nullptr) Admin::check(rbd_close(std::exchange(image_, nullptr)));
  }

 private:
  Admin by_;
  rbd_image_t image_;
};

class RealCluster final : public test::ContractCluster {
 public:
  image::Access access() override { return lab::access(); }
  std::string pool() override { return pool_name(); }
  test::ContractNode& ours() override { return ours_; }
  test::ContractNode& other() override { return other_; }
  void agent_dies(const std::string& image) override { ours_.dies_with(image); }
  std::unique_ptr<test::ContractStranger> opened_by_stranger(const std::string& image) override {
    return std::make_unique<RealStranger>(image);
  }
  void create(const std::string& image, bool exclusive_lock) override {
    admin_.create(image, 64 << 20, exclusive_lock ? 61 : 1);
  }
  void remove(const std::string& image) override { admin_.remove(image); }
  void resize(const std::string& image, std::uint64_t bytes) override {
    rbd_image_t opened = admin_.open(image);
    Admin::check(rbd_resize(opened, bytes));
    Admin::check(rbd_close(opened));
  }
  void lock_by_hand(const std::string& image) override {
    rbd_image_t opened = admin_.open(image);
    Admin::check(rbd_lock_exclusive(opened, "maintenance"));
    Admin::check(rbd_close(opened));
  }
  void cache_by_metadata(const std::string& image) override { admin_.set_metadata(image, "conf_rbd_cache", "true"); }
  void set_dirty_cache(const std::string& image, bool dirty) override { admin_.set_dirty_cache(image, dirty); }

 private:
  Admin admin_;
  RealNode ours_, other_;
};

}  // namespace

TEST_CASE("a real cluster keeps the contract that the world's fake keeps") {
  test::check_cluster_contract([] { return std::make_unique<RealCluster>(); });
}
