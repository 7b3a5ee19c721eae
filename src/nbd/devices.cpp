#include "corbd/nbd/devices.hpp"

#include <atomic>

#include "corbd/core/log.hpp"
#include "link.hpp"
#include "netlink_thread.hpp"
#include "sysfs.hpp"

namespace corbd::nbd {
namespace {

constexpr std::chrono::seconds kStuck{1}, kBackendsFor{1};
constexpr int kNumbers = 4;  ///< that are tried for a new device

result<std::uint32_t> connect_beside(Netlink& netlink, const device::ConnectArgs& args, int socket, const std::string& sysfs) {
  auto avoid = args.avoid;
  for (int tries = 1;; ++tries) {
    const auto number = number_to_ask_for(sysfs, avoid);
    if (!number) return number.error();
    auto index = netlink.connect(args, *number, socket);
    if (index || !*number || tries == kNumbers) return index;
    // EINVAL for one on its way out, as for anything else that it does not like; EBUSY for one that another program made meanwhile.
    avoid.push_back(**number);
  }
}

result<std::uint32_t> give_to_kernel(KernelEnd& end, Netlink& netlink, const device::ConnectArgs& args, const std::string& sysfs) {
  if (end.index) return *end.index;  // by an earlier command, whose caller did not wait for its end
  auto index = connect_beside(netlink, args, end.socket.get(), sysfs);
  if (!index) return index;
  end.index = *index;
  end.socket.reset();
  return index;
}

result<> give_back_to_kernel(KernelEnd& end, Netlink& netlink, const device::ReconnectArgs& args) {
  if (end.index == args.index) return {};
  if (end.index)
    return Error{errc::internal, "the link for " + device::path(args.index) + " was given to " + device::path(*end.index) + " already"};
  auto done = netlink.reconfigure(args, end.socket.get());
  if (!done) return done;
  end.index = args.index;
  end.socket.reset();
  return {};
}

class Devices final : public device::Devices {
 public:
  Devices(executor control, Clock& clock, Config config)
      : control_(control), clock_(clock), sysfs_(std::move(config.sysfs)), loop_(config.bytes_in_flight, config.max_request_bytes),
        dead_(std::make_shared<std::function<void(std::uint32_t)>>()), netlink_(probe_, [control, dead = dead_](std::uint32_t index) {
          asio::post(control, [dead, index] {
            if (*dead) (*dead)(index);
          });
        }) {}

  result<> ready() const override {
    if (driver_present(sysfs_)) return {};
    return Error{errc::failed_precondition, "the kernel's nbd driver is not there: run `modprobe nbd nbds_max=0` on the node"};
  }
  result<std::vector<device::Seen>> inventory() const override { return read_inventory(sysfs_); }
  result<std::vector<device::Seen>> find(const std::string& backend) const override {
    // Who carries what changes only by a command: ours is counted, another's is seen a second later.
    const auto commands = commands_.load();
    const bool old = !backends_ || backends_->commands != commands || clock_.now() - backends_->read_at >= kBackendsFor;
    if (auto found = old ? std::nullopt : still(backend)) return *found;
    auto read = read_backends(sysfs_);
    if (!read) return read.error();
    backends_ = Backends{std::move(*read), commands, clock_.now()};
    return still(backend).value_or(std::vector<device::Seen>());
  }

  result<std::unique_ptr<device::Link>> serve(image::Image& image, bool read_only, std::function<void()> on_stopped) override {
    auto pair = make_socket_pair();
    if (!pair) return pair.error();
    std::unique_ptr<device::Link> link = std::make_unique<Link>(control_, clock_, loop_, image, read_only, std::move(pair->first),
                                                                std::move(pair->second), std::move(on_stopped), probe_);
    return link;
  }

  task<result<std::uint32_t>> connect(device::Link& link, device::ConnectArgs args, Until until) override {
    std::string what = "connecting an nbd device for " + args.backend;
    auto command = [end = static_cast<Link&>(link).kernel_end(), args = std::move(args), sysfs = sysfs_](Netlink& netlink) {
      return give_to_kernel(*end, netlink, args, sysfs);
    };
    co_return co_await on_netlink<std::uint32_t>(std::move(command), until, std::move(what));
  }

  task<result<>> reconnect(device::Link& link, device::ReconnectArgs args, Until until) override {
    const Link& ours = static_cast<Link&>(link);
    const std::uint32_t index = args.index;
    auto command = [end = ours.kernel_end(), args = std::move(args)](Netlink& netlink) { return give_back_to_kernel(*end, netlink, args); };
    auto done = co_await on_netlink<void>(std::move(command), until, "reconnecting " + device::path(index));
    // The kernel says yes and drops the socket when no link of the device is dead.
    if (done && !ours.connected())
      done = Error{errc::unavailable, device::path(index) + " did not take the new link: its old one still lives"};
    co_return done;
  }

  task<result<>> resize(device::Link& link, std::uint32_t index, std::string backend, std::uint64_t bytes, Until until) override {
    const Link& ours = static_cast<Link&>(link);
    if (!ours.connected() || ours.oldest() > kStuck)
      co_return Error{errc::unavailable, device::path(index) + " is not resized while its link is down or a request waits for the cluster"};
    auto command = [index, backend = std::move(backend), bytes](Netlink& netlink) { return netlink.resize(index, backend, bytes); };
    co_return co_await on_netlink<void>(std::move(command), until, "resizing " + device::path(index));
  }

  task<result<>> disconnect(std::uint32_t index, Until until) override {
    auto command = [index](Netlink& netlink) { return netlink.disconnect(index); };
    co_return co_await on_netlink<void>(command, until, "disconnecting " + device::path(index));
  }

  void on_link_dead(std::function<void(std::uint32_t)> dead) override { *dead_ = std::move(dead); }
  device::Counters counters() const override { return probe_.read(); }

 private:
  /// As of one look at all devices.
  struct Backends {
    std::vector<std::pair<std::uint32_t, std::string>> all;
    std::uint64_t commands;
    time_point read_at;
  };
  /// Nothing when the look is not true any more.
  std::optional<std::vector<device::Seen>> still(const std::string& backend) const {
    std::vector<device::Seen> found;
    for (const auto& [index, carried] : backends_->all) {
      if (carried != backend) continue;
      auto seen = read_one(sysfs_, index);
      if (!seen || seen->backend != backend) return std::nullopt;
      found.push_back(std::move(*seen));
    }
    return found;
  }

  /// A wait that ends early leaves the command running, but one that has not begun is dropped: the device may be another's by then.
  template <class T, class Command>
  task<result<T>> on_netlink(Command command, Until until, std::string what) {
    Promise<T> promise(control_, clock_);
    auto future = promise.future();
    const auto wanted = std::make_shared<std::atomic<bool>>(true);
    netlink_.post([this, promise, wanted, command = std::move(command)] {
      if (!*wanted) return;
      auto netlink = Netlink::open();
      auto done = netlink ? command(*netlink) : result<T>(netlink.error());
      ++commands_;
      promise.set(std::move(done));
    });
    auto outcome = co_await future.get(until, std::move(what));
    *wanted = false;
    co_return outcome;
  }

  executor control_;
  Clock& clock_;
  std::string sysfs_;
  Probe probe_;
  IoLoop loop_;
  std::shared_ptr<std::function<void(std::uint32_t)>> dead_;  ///< control thread
  mutable std::optional<Backends> backends_;
  std::atomic<std::uint64_t> commands_{0};  ///< of ours that ended
  NetlinkThread netlink_;
};

}  // namespace

std::unique_ptr<device::Devices> make_devices(executor control, Clock& clock, Config config) {
  return std::make_unique<Devices>(std::move(control), clock, std::move(config));
}

}  // namespace corbd::nbd
