#include "inventory.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>

#include "corbd/core/log.hpp"
#include "corbd/host/helpers.hpp"
#include "corbd/host/luks.hpp"
#include "corbd/kms/kms.hpp"
#include "corbd/nbd/devices.hpp"
#include "corbd/nbd/sysfs.hpp"
#include "link.hpp"
#include "support/still_ports.hpp"

namespace corbd::bench {
namespace {

namespace fs = std::filesystem;
namespace still = test::still;

double cpu_ms() {  // of this thread
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

std::string id_of(std::uint32_t number) {
  return "0001-0009-rook-ceph-0000000000000001-15df6447-688b-11ea-9afc-" + std::to_string(100'000'000'000 + number);
}
std::string path_of(std::uint32_t number) {
  return "/kubelet/plugins/kubernetes.io/csi/rbd.csi.ceph.com/" + std::to_string(number) + "/globalmount";
}

/// Files as sysfs has them, read by the real room.
class Devices final : public still::Devices {
 public:
  Devices(executor control, Clock& clock, std::string sysfs)
      : sysfs_(std::move(sysfs)), real_(nbd::make_devices(std::move(control), clock, {sysfs_})) {
    fs::create_directories(sysfs_ + "/block");
  }
  void make(std::uint32_t index, const std::string& backend) const {
    const std::string folder = sysfs_ + "/block/nbd" + std::to_string(index);
    fs::create_directories(folder + "/queue");
    fs::create_directories(folder + "/holders");
    for (const auto& [name, text] : {std::pair<std::string, std::string>{"backend", backend},
                                     {"pid", "1"},
                                     {"dev", "43:" + std::to_string(index * 32)},
                                     {"size", "2048"},
                                     {"queue/io_timeout", "1000"},
                                     {"inflight", "0 0"}})
      std::ofstream(folder + "/" + name) << text << "\n";
  }
  result<std::vector<device::Seen>> inventory() const override { return real_->inventory(); }
  std::string backend_of(std::uint32_t index) const override { return real_->backend_of(index); }
  result<std::vector<device::Seen>> find(const std::string& backend) const override {
    auto found = real_->find(backend);
    // The real one knows what its own command made.
    if (found && found->empty() && backend == made_) found->push_back(*nbd::read_one(sysfs_, next));
    return found;
  }
  task<result<std::uint32_t>> connect(device::Link&, device::ConnectArgs args, Until) override {
    make(next, args.backend);
    made_ = args.backend;
    co_return next;
  }
  void on_link_dead(std::function<void(std::uint32_t)> told) override { dead = std::move(told); }

  std::function<void(std::uint32_t)> dead;
  std::uint32_t next = 0;

 private:
  const std::string sysfs_;
  std::string made_;
  std::unique_ptr<device::Devices> real_;
};

class Mounts final : public still::Mounts {
 public:
  task<result<>> mount(std::string device, std::string, std::string target, std::string, HelperOwner, Until) override {
    add(static_cast<std::uint32_t>(std::stoul(device.substr(8))), std::move(target));
    co_return result<>();
  }
  void add(std::uint32_t index, std::string target) {
    host::Mount made;
    made.dev_major = 43;
    made.dev_minor = index * 32;
    made.fstype = "ext4";
    made.root = "/";
    made.target = std::move(target);
    all.push_back(std::move(made));
  }
};

plan::Record record_of(std::uint32_t number) {
  plan::Record record;
  record.volume_id = id_of(number);
  record.names.driver = "rbd.csi.ceph.com";
  record.key = {"fsid", 1, "", std::to_string(number), 0};
  record.device.boot_id = "boot";
  record.device.exclusive_lock = true;
  record.device.index = number;
  record.stagings.push_back({path_of(number), {}, true});
  record.stagings.back().capability.fstype = "ext4";
  return record;
}

void measure(std::uint32_t count) {
  const std::string dir = "/dev/shm/corbd-bench-" + std::to_string(::getpid());
  fs::remove_all(dir);
  {
    asio::io_context io;
    const executor control = io.get_executor();
    const auto clock = make_real_clock(control);
    BlockingPool pool(control, *clock, 1);
    HelperPool helpers(control, *clock, {});
    still::Clusters clusters;
    Devices devices(control, *clock, dir);
    still::KernelClient kernel;
    Mounts mounts;
    still::Formatted filesystems;
    still::Daemons daemons;
    const auto luks = host::make_luks(helpers);
    const auto fscrypt = host::make_fscrypt(helpers);
    const auto kms = kms::make_kms(control, *clock, pool, nullptr, {dir, "", ""});
    still::Records records;
    for (std::uint32_t number = 0; number < count; ++number) {
      devices.make(number, id_of(number));
      records.loaded.records.push_back(record_of(number));
      mounts.add(number, path_of(number) + "/" + id_of(number));
      for (const char* pod : {"a", "b"}) mounts.add(number, "/kubelet/pods/" + std::to_string(number) + pod + "/mount");
    }
    devices.next = count;
    volume::Config config;
    config.boot_id = "boot";
    config.policy.driver = "rbd.csi.ceph.com";
    still::ClusterDirectory directory("mon");
    still::NodeFiles files;
    still::Orchestrator nobody;
    const volume::Ports ports{.clusters = clusters,
                              .devices = devices,
                              .kernel = kernel,
                              .mounts = mounts,
                              .filesystems = filesystems,
                              .daemons = daemons,
                              .luks = *luks,
                              .fscrypt = *fscrypt,
                              .kms = *kms,
                              .records = records,
                              .directory = directory,
                              .files = files,
                              .orchestrator = nobody};
    volume::Shell shell(control, *clock, ports, config);
    const auto run = [&](task<result<>> work) {
      bool over = false;
      result<> outcome;
      asio::co_spawn(control, std::move(work), [&](std::exception_ptr, result<> done) {
        outcome = std::move(done);
        over = true;
      });
      const double before = cpu_ms();
      io.restart();
      while (!over) io.run_one();
      return std::pair{cpu_ms() - before, outcome};
    };
    static_cast<void>(run(shell.start()));
    static_cast<void>(shell.status());  // what it reads is in the kernel's cache
    double before = cpu_ms();
    for (std::uint32_t number = 0; number < count; ++number) devices.dead(number);
    const double dead = cpu_ms() - before;
    before = cpu_ms();
    static_cast<void>(shell.status());
    const double status = cpu_ms() - before;
    const double first_look = run(shell.want(id_of(0), plan::Healed{}, {})).first;
    double looks = 0;
    for (std::uint32_t number = 0; number < count; ++number)
      looks += run(shell.want(id_of(number), plan::Healed{}, {})).first;
    plan::Staged wish;
    wish.path = path_of(count);
    wish.capability.fstype = "ext4";
    wish.source.cluster_id = "rook-ceph";
    wish.source.pool = "pool";
    wish.source.image = "new";
    wish.credential = {"node", Secret("key")};
    const auto stage = run(shell.want(id_of(count), wish, {}));
    if (!stage.second) throw std::runtime_error("stage: " + stage.second.error().text);
    std::printf(
        "%5u devices: the end of all links %.1f ms; one look %.2f ms, the first of a second %.1f ms, one at each %.1f "
        "ms; status of all %.1f ms; one stage %.1f ms\n",
        count, dead, looks / count, first_look, looks, status, stage.first);
    std::fflush(stdout);
    fs::remove_all(dir);
    ::_exit(0);  // what serves the new volume is not taken down
  }
}

/// Holds what it is asked until it is told, and has written to every page of a read by then.
class Holding final : public image::BlockImage {
 public:
  explicit Holding(std::size_t keep) : keep_(keep) {}
  const image::Key& key() const override { return key_; }
  std::uint64_t size() const override { return 1ull << 30; }
  bool read_only() const override { return false; }
  void write(image::Op& op, std::uint64_t, std::span<const std::byte>) override { op.done(&op, 0); }
  void flush(image::Op& op) override { op.done(&op, 0); }
  void discard(image::Op& op, std::uint64_t, std::uint64_t) override { op.done(&op, 0); }
  void write_zeroes(image::Op& op, std::uint64_t, std::uint64_t) override { op.done(&op, 0); }
  void read(image::Op& op, std::uint64_t, std::span<std::byte> into) override {
    std::memset(into.data(), 1, into.size());
    const std::lock_guard lock(mutex_);
    ops_.push_back(&op);
  }
  /// All but the last `keep` of so many.
  std::size_t release(std::size_t of) {
    std::deque<image::Op*> ending;
    {
      const std::lock_guard lock(mutex_);
      while (!ops_.empty() && ended_ < of - keep_) {
        ending.push_back(ops_.front());
        ops_.pop_front();
        ++ended_;
      }
    }
    for (image::Op* op : ending) op->done(op, -EIO);
    return ended_;
  }

 private:
  std::mutex mutex_;
  std::deque<image::Op*> ops_;
  std::size_t ended_ = 0;
  image::Key key_;
  const std::size_t keep_;
};

double resident_mib() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

}  // namespace

int inventory() {
  log::set_level(log::Level::error);
  for (const std::uint32_t count : {300u, 1000u}) {
    const pid_t child = ::fork();
    if (child == 0) measure(count);
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  return 0;
}

int memory(int count, int depth, unsigned bytes) {
  log::set_level(log::Level::error);
  const auto wanted = static_cast<std::size_t>(depth);
  asio::io_context control;
  const auto clock = make_real_clock(control.get_executor());
  nbd::Counters counters;
  nbd::IoLoop loop(512ull << 20, 32u << 20);
  std::vector<std::unique_ptr<Holding>> images;
  std::vector<Fd> peers;
  std::vector<std::unique_ptr<nbd::NbdLink>> links;
  for (int i = 0; i < count; ++i) {
    auto pair = nbd::make_socket_pair();
    if (!pair) throw std::runtime_error(pair.error().text);
    images.push_back(std::make_unique<Holding>(1));
    peers.push_back(std::move(pair->second));
    links.push_back(
        nbd::serve_socket(control.get_executor(), *clock, loop, *images.back(), std::move(pair->first), counters));
  }
  const auto rest = [](auto time) { std::this_thread::sleep_for(time); };
  rest(std::chrono::milliseconds(200));
  const double idle = resident_mib();
  std::vector<std::byte> batch;
  for (int i = 0; i < depth; ++i) {
    const auto put = [&](std::uint64_t value, int size) {
      for (int shift = 8 * (size - 1); shift >= 0; shift -= 8)
        batch.push_back(static_cast<std::byte>(value >> shift & 0xff));
    };
    put(0x25609513, 4);
    put(0, 4);  // a read
    put(static_cast<std::uint64_t>(i), 8);
    put(0, 8);
    put(bytes, 4);
  }
  for (const auto& peer : peers)
    if (::send(peer.get(), batch.data(), batch.size(), 0) != static_cast<ssize_t>(batch.size()))
      throw std::runtime_error("send");
  for (std::uint64_t before = 1; before != loop.budget.used();) {
    before = loop.budget.used();
    rest(std::chrono::milliseconds(500));
  }
  const double busy = resident_mib(), in_flight = static_cast<double>(loop.budget.used()) / (1 << 20);
  for (bool over = false; !over;) {
    over = true;
    for (const auto& image : images) over = image->release(wanted) == wanted - 1 && over;
    rest(std::chrono::milliseconds(1));
  }
  rest(std::chrono::seconds(10));
  const double after = resident_mib();
  std::printf(
      "%d devices with %d requests of %u KiB each: idle %.0f MiB, busy %.0f MiB more (%.0f MiB in flight; bound 512 + "
      "%d), 10 s after the peak, with one request "
      "of each still under way, %.0f MiB more (%.0f MiB in flight, %.0f MiB of buffers)\n",
      count, depth, bytes >> 10, idle, busy - idle, in_flight, count, after - idle,
      static_cast<double>(loop.budget.used()) / (1 << 20), static_cast<double>(loop.buffers.resident()) / (1 << 20));
  std::fflush(stdout);
  ::_exit(0);  // with a request under way on every link
}

}  // namespace corbd::bench
