// A real kernel keeps the contract that the fake one of tests/sim keeps. Needs root and a kernel to play with.
#include "support/kernel_contract.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <boost/asio/io_context.hpp>
#include <csignal>
#include <thread>

#include "corbd/host/helpers.hpp"
#include "corbd/nbd/devices.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/memory_image.hpp"
#include "support/places.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

HelperPool::Config helper_config() {
  HelperPool::Config config;
  config.program = test::corbd_program();
  return config;
}

/// A process, because a request may wait for ever.
pid_t start(std::vector<std::string> command) {
  std::vector<char*> arguments;
  for (auto& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  ::posix_spawn_file_actions_init(&quiet);
  ::posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  REQUIRE(::posix_spawnp(&pid, arguments.front(), &quiet, nullptr, arguments.data(), environ) == 0);
  ::posix_spawn_file_actions_destroy(&quiet);
  return pid;
}

class RealKernel final : public test::ContractKernel {
 public:
  /// What the last check left is gone from sysfs a moment later.
  RealKernel() {
    REQUIRE(drive([this] { return devices_->inventory().value().empty(); }, 20s));
  }
  /// A check may end anywhere. A device that is disconnected lets nobody wait.
  ~RealKernel() override {
    if (const auto all = devices_->inventory())
      for (const auto& seen : *all) disconnect(seen.index);
    open_devices_.clear();
    open_files_.clear();
    for (const char* target : {"/pod", "/staged", "/node"}) ::umount2((folder() + target).c_str(), MNT_DETACH);
    if (!drive([this] { return pids_.empty(); }, 20s)) std::fputs("a request does not end\n", stderr);
    if (std::filesystem::exists("/dev/mapper/luks-rbd-contract"))
      static_cast<void>(run(luks_->close("luks-rbd-contract", {}, in(20s))));
  }
  device::Devices& devices() override { return *devices_; }
  host::Mounts& mounts() override { return *mounts_; }
  host::Filesystems& filesystems() override { return *filesystems_; }
  host::Luks& luks() override { return *luks_; }
  image::BlockImage& image() override { return image_; }
  void answers(bool on) override {
    image_.set_ends(on ? test::MemoryImage::Ends::elsewhere : test::MemoryImage::Ends::when_told);
    if (on) image_.release();
  }
  std::string folder() override { return folder_.path(); }
  executor control() override { return control_.get_executor(); }
  Until in(std::chrono::milliseconds time) override { return {clock_->now() + time, nullptr}; }
  bool drive(const std::function<bool()>& until, std::chrono::milliseconds at_most) override {
    const auto end = std::chrono::steady_clock::now() + at_most;
    for (;;) {
      control_.restart();
      control_.run_for(2ms);
      reap();
      if (until()) return true;
      if (std::chrono::steady_clock::now() >= end) return false;
    }
  }

  void begin_io(std::uint32_t index, bool write) override {
    const std::string device = device::path(index), at = std::to_string(++block_);
    pids_.push_back(
        write ? start({"dd", "if=/dev/zero", "of=" + device, "seek=" + at, "bs=4k", "count=1", "oflag=direct",
                       "conv=notrunc"})
              : start({"dd", "if=" + device, "of=/dev/null", "skip=" + at, "bs=4k", "count=1", "iflag=direct"}));
  }
  int answered() override { return answered_; }
  int failed() override { return failed_; }
  void open_device(std::uint32_t index) override {
    open_devices_[index] = Fd(::open(device::path(index).c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(open_devices_[index]);
  }
  void close_device(std::uint32_t index) override { open_devices_.erase(index); }
  void disconnect(std::uint32_t index) override {
    const auto by = nbd::make_devices(control(), *clock_, {});
    const auto backend = by->backend_of(index);
    CHECK(run(by->disconnect(index, backend, in(20s))));
  }
  void set_read_only(std::uint32_t index) override {
    const Fd device(::open(device::path(index).c_str(), O_RDONLY | O_CLOEXEC));
    const int on = 1;
    REQUIRE(::ioctl(device.get(), BLKROSET, &on) == 0);
  }
  void open_file(const std::string& target) override {
    open_files_[target] = Fd(::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    REQUIRE(open_files_[target]);
  }
  void close_file(const std::string& target) override { open_files_.erase(target); }
  void unmount_lazily(const std::string& target) override { REQUIRE(::umount2(target.c_str(), MNT_DETACH) == 0); }

 private:
  void reap() {
    std::erase_if(pids_, [this](pid_t pid) {
      int status = 0;
      if (::waitpid(pid, &status, WNOHANG) != pid) return false;
      ++(status == 0 ? answered_ : failed_);
      return true;
    });
  }
  const test::Folder folder_;
  test::MemoryImage image_{64 << 20, test::MemoryImage::Ends::elsewhere};
  asio::io_context control_;
  std::unique_ptr<Clock> clock_ = make_real_clock(control_.get_executor());
  HelperPool helpers_{control_.get_executor(), *clock_, helper_config()};
  std::unique_ptr<device::Devices> devices_ =
      nbd::make_devices(control_.get_executor(), *clock_, {.helper = {.program = test::corbd_program()}});
  std::unique_ptr<host::Mounts> mounts_ = host::make_mounts(helpers_);
  std::unique_ptr<host::Filesystems> filesystems_ = host::make_filesystems(helpers_);
  std::unique_ptr<host::Luks> luks_ = host::make_luks(helpers_);
  std::map<std::uint32_t, Fd> open_devices_;
  std::map<std::string, Fd> open_files_;
  std::vector<pid_t> pids_;
  int block_ = 0, answered_ = 0, failed_ = 0;
};

}  // namespace

TEST_CASE("a real kernel keeps the contract that the world's fake keeps") {
  test::check_kernel_contract([] { return std::make_unique<RealKernel>(); });
}
