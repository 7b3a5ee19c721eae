// An agent on a fake kernel and a fake cluster: gRPC, shell, records and mountinfo are real. Each volume is a tmpfs.
// Needs a mount namespace of its own.
#pragma once

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "corbd/csi/server.hpp"
#include "corbd/heal/healer.hpp"
#include "corbd/host/helpers.hpp"
#include "corbd/host/luks.hpp"
#include "corbd/kms/kms.hpp"
#include "corbd/nbd/devices.hpp"
#include "corbd/nbd/sysfs.hpp"
#include "support/still_ports.hpp"

namespace corbd::bench::fake {

namespace fs = std::filesystem;
namespace still = test::still;

constexpr std::chrono::seconds kSettled{2};

/// Files as sysfs has them, read by the real inventory.
class Devices final : public still::Devices {
 public:
  Devices(executor control, Clock& clock, std::string sysfs)
      : sysfs_(std::move(sysfs)), real_(nbd::make_devices(std::move(control), clock, {sysfs_})) {
    fs::create_directories(sysfs_ + "/module/nbd");
    fs::create_directories(sysfs_ + "/block");
  }
  result<std::vector<device::Seen>> inventory() const override { return real_->inventory(); }
  /// The real one sees at once only what its own commands made.
  result<std::vector<device::Seen>> find(const std::string& backend) const override {
    auto found = real_->find(backend);
    if (const auto made = indices_.find(backend); found && found->empty() && made != indices_.end())
      if (auto seen = nbd::read_one(sysfs_, made->second)) found->push_back(std::move(*seen));
    return found;
  }
  task<result<std::uint32_t>> connect(device::Link&, device::ConnectArgs args, Until) override {
    const auto index = made_++;
    indices_[args.backend] = index;
    const std::string folder = folder_of(index);
    fs::create_directories(folder + "/queue");
    fs::create_directories(folder + "/holders");
    for (const auto& [name, text] : {std::pair<std::string, std::string>{"backend", args.backend},
                                     {"pid", "1"},
                                     {"dev", "43:" + std::to_string(index * 32)},
                                     {"size", std::to_string(args.size / 512)},
                                     {"queue/io_timeout", "1000"},
                                     {"inflight", "0 0"}})
      std::ofstream(folder + "/" + name) << text << "\n";
    co_return index;
  }
  task<result<>> disconnect(std::uint32_t index, std::string backend, Until) override {
    indices_.erase(backend);
    fs::remove_all(folder_of(index));
    co_return result<>();
  }
  /// The mount's own numbers are the device's.
  void shown_by(std::uint32_t index, const struct stat& mount) {
    std::ofstream(folder_of(index) + "/dev") << major(mount.st_dev) << ":" << minor(mount.st_dev) << "\n";
  }

 private:
  std::string folder_of(std::uint32_t index) const { return sysfs_ + "/block/nbd" + std::to_string(index); }
  const std::string sysfs_;
  std::unique_ptr<device::Devices> real_;
  std::uint32_t made_ = 0;
  std::map<std::string, std::uint32_t> indices_;
};

/// A tmpfs for each volume; mountinfo is the real one.
class Mounts final : public still::Mounts {
 public:
  Mounts(HelperPool& helpers, BlockingPool& pool, Devices& devices)
      : real_(host::make_mounts(helpers)), pool_(pool), devices_(devices) {}
  result<host::MountTable> table() const override { return real_->table(); }
  task<result<>> mount(std::string device, std::string, std::string target, std::string, HelperOwner, Until) override {
    fs::create_directories(target);
    struct stat seen{};
    if (::mount("bench", target.c_str(), "tmpfs", 0, "size=64k") != 0 || ::stat(target.c_str(), &seen) != 0)
      co_return Error{errc::io, "mounting a tmpfs at " + target};
    devices_.shown_by(static_cast<std::uint32_t>(std::stoul(device.substr(8))), seen);
    co_return result<>();
  }
  task<result<>> bind(std::string source, std::string target, bool, std::string, HelperOwner, Until until) override {
    const auto work = [source, target]() -> result<> {
      fs::create_directories(target);
      if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) == 0) return {};
      return Error{errc::io, "binding " + source + " on " + target + ": " + std::strerror(errno)};
    };
    co_return co_await pool_.run(work, until, "a bind mount");
  }
  /// The kernel lets each one wait for its other processors.
  task<result<>> unmount(std::string target, bool, HelperOwner, Until until) override {
    const auto work = [target]() -> result<> {
      const bool gone = ::umount2(target.c_str(), UMOUNT_NOFOLLOW) == 0 || errno == EINVAL || errno == ENOENT;
      if (!gone) return Error{errc::in_use, "unmounting " + target + ": " + std::strerror(errno)};
      ::rmdir(target.c_str());
      return {};
    };
    co_return co_await pool_.run(work, until, "an unmount");
  }

 private:
  std::unique_ptr<host::Mounts> real_;
  BlockingPool& pool_;
  Devices& devices_;
};

class NodeFiles final : public still::NodeFiles {
 public:
  task<result<>> check_path(std::string path, bool must_exist) override {
    co_return host::check_path("/dev/shm", path, must_exist);
  }
  bool busy(const std::string& busy_file) const override { return host::busy(busy_file); }
};

/// What `corbd run` makes of the rooms, beside a cluster and devices that are none.
struct Agent {
  explicit Agent(std::string folder) : dir(std::move(folder)), server(control, *clock, shell, config()) {}
  csi::Config config() const {
    csi::Config made;
    made.endpoint = "unix://" + dir + "/csi.sock";
    made.drivername = "rbd.csi.ceph.com";
    made.nodeid = "node";
    made.version = "bench";
    return made;
  }
  volume::Ports ports() {
    return {.clusters = clusters,
            .devices = devices,
            .kernel = kernel,
            .mounts = mounts,
            .filesystems = filesystems,
            .daemons = daemons,
            .luks = *luks,
            .fscrypt = *fscrypt,
            .kms = *kms,
            .records = *records,
            .directory = directory,
            .files = files,
            .orchestrator = nobody};
  }
  static volume::Config shell_config() {
    volume::Config made;
    made.boot_id = "boot";
    made.policy.driver = "rbd.csi.ceph.com";
    return made;
  }
  const std::string dir;
  asio::io_context io;
  executor control = io.get_executor();
  std::unique_ptr<Clock> clock = make_real_clock(control);
  BlockingPool pool{control, *clock, 8};
  HelperPool helpers{control, *clock, {}};
  still::Clusters clusters;
  Devices devices{control, *clock, dir + "/sys"};
  still::KernelClient kernel;
  Mounts mounts{helpers, pool, devices};
  still::Formatted filesystems;
  still::Daemons daemons;
  std::unique_ptr<host::Luks> luks = host::make_luks(helpers);
  std::unique_ptr<host::Fscrypt> fscrypt = host::make_fscrypt(helpers);
  std::unique_ptr<kms::Kms> kms = kms::make_kms(control, *clock, pool, nullptr, {dir, "", ""});
  std::unique_ptr<volume::RecordStore> records = volume::make_record_store(pool, dir + "/state", dir + "/runtime");
  still::ClusterDirectory directory{"mon"};
  NodeFiles files;
  still::Orchestrator nobody;
  volume::Shell shell{control, *clock, ports(), shell_config()};
  heal::Healer healer{control, *clock, shell, {}};
  csi::Server server;
};

}  // namespace corbd::bench::fake
