// The world's kernel answers as a real one does, as far as the agent relies on it.
#include "support/kernel_contract.hpp"

#include "scene.hpp"
#include "support/world/ports.hpp"

using namespace corbd;
using test::World;

namespace {

class FakeKernel final : public test::ContractKernel {
 public:
  FakeKernel() {
    scene_.world.hazards = &calm_;
    scene_.image().size = 64 << 20;
    // A plan notes before a format that it is its own.
    scene_.image().metadata["corbd/format"] = "contract";
    const image::Access access{"lab", {"10.0.0.9"}, "node", Secret("canary-key")};
    REQUIRE(run(clusters_->fence_dead(access, {})));
    auto opened = run(clusters_->open(access, {"fsid", 1, "", scene_.image().id, 0}, {}, {}));
    REQUIRE(opened);
    image_ = std::move(*opened);
    REQUIRE(run(image_->ownership({})));
    REQUIRE(run(image_->acquire_lock({})));
  }
  ~FakeKernel() override {
    image_.reset();
    clusters_.reset();
    scene_.world.agent.kill();
    for (const auto& rule : scene_.world.broken_rules) FAIL_CHECK(rule);
  }
  device::Devices& devices() override { return *devices_; }
  host::Mounts& mounts() override { return *mounts_; }
  host::Filesystems& filesystems() override { return *filesystems_; }
  host::Luks& luks() override { return *luks_; }
  image::BlockImage& image() override { return *image_; }
  void answers(bool on) override { on ? scene_.world.cluster.revive() : void(scene_.world.cluster.dead = true); }
  std::string folder() override { return "/contract"; }
  executor control() override { return scene_.loop.control(); }
  Until in(std::chrono::milliseconds time) override { return {scene_.loop.clock.now() + time, nullptr}; }
  bool drive(const std::function<bool()>& until, std::chrono::milliseconds at_most) override {
    const auto end = scene_.loop.clock.now() + at_most;
    scene_.loop.poll();
    while (!until() && scene_.loop.clock.now() < end) scene_.loop.step(end);
    return until();
  }

  void begin_io(std::uint32_t index, bool write) override {
    auto& device = *kernel().by_index(index);
    write ? kernel().application_writes(device, block_++) : kernel().application_reads(device, block_++);
  }
  int answered() override { return static_cast<int>(kernel().answered); }
  int failed() override { return static_cast<int>(kernel().errors); }
  void open_device(std::uint32_t index) override { kernel().open_device(index); }
  void close_device(std::uint32_t index) override { kernel().close_device(index); }
  void disconnect(std::uint32_t index) override { kernel().disconnect(index); }
  void set_read_only(std::uint32_t index) override { kernel().read_only_numbers.insert(index); }
  void open_file(const std::string& target) override { kernel().open_file(target); }
  void close_file(const std::string& target) override { kernel().close_file(target); }
  void unmount_lazily(const std::string& target) override { kernel().unmount_lazily(target); }

 private:
  test::Kernel& kernel() { return scene_.world.kernel; }
  test::Calm calm_;
  test::Scene scene_;
  std::unique_ptr<image::Clusters> clusters_ = test::make_clusters(scene_.world);
  std::unique_ptr<device::Devices> devices_ = test::make_devices(scene_.world);
  std::unique_ptr<host::Mounts> mounts_ = test::make_mounts(scene_.world);
  std::unique_ptr<host::Filesystems> filesystems_ = test::make_filesystems(scene_.world);
  std::unique_ptr<host::Luks> luks_ = test::make_luks(scene_.world);
  std::unique_ptr<image::Image> image_;
  std::size_t block_ = 0;
};

}  // namespace

TEST_CASE("the world's kernel keeps the contract that real ones keep") {
  test::check_kernel_contract([] { return std::make_unique<FakeKernel>(); });
}
