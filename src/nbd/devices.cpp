#include "corbd/nbd/devices.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include "commands.hpp"
#include "corbd/nbd/sysfs.hpp"
#include "inherited_links.hpp"
#include "io_loops.hpp"
#include "link.hpp"
#include "netlink_thread.hpp"
#include "resize.hpp"

namespace corbd::nbd {
namespace {

constexpr std::chrono::seconds kBackendsFor{1};
constexpr std::chrono::milliseconds kLooksForEnd{2};
constexpr std::size_t kNumbers = 8;  ///< numbers that are tried for a new device

/// Connects the lowest free number. Without a number the kernel would take any existing device rather than fill a hole,
/// and no hole may stay.
result<std::uint32_t> connect_new(Netlink& netlink, const device::ConnectArgs& args, int socket, bool write_zeroes,
                                  const std::vector<std::uint32_t>& avoid, const std::string& sysfs) {
  const auto numbers = free_numbers(sysfs, avoid, kNumbers);
  if (!numbers) return numbers.error();
  result<std::uint32_t> index = Error{errc::internal, "no number was tried"};
  for (const Number& number : *numbers) {
    index = netlink.connect(args, write_zeroes, number.index, socket);
    // Another program has the device open, or connected it. The kernel refuses a device that is on its way out with the
    // same error as a bad argument.
    const bool next = !index && (index.error().code == errc::in_use ||
                                 (index.error().code == errc::failed_precondition && number.exists));
    if (!next) return index;
  }
  return index;
}

result<std::uint32_t> connect_link(KernelEnd& end, Netlink& netlink, const device::ConnectArgs& args, bool write_zeroes,
                                   const std::vector<std::uint32_t>& avoid, const std::string& sysfs) {
  if (end.index) return *end.index;  // an earlier command did it, whose caller did not wait for its end
  auto index = connect_new(netlink, args, end.socket.get(), write_zeroes, avoid, sysfs);
  if (!index) return index;
  end.index = *index;
  end.socket.reset();
  return index;
}

result<> reconnect_link(KernelEnd& end, Netlink& netlink, const device::ReconnectArgs& args) {
  if (end.index == args.index) return {};  // an earlier command did it, whose caller did not wait for its end
  if (end.index)
    return Error{errc::internal,
                 "the link for " + device::path(args.index) + " already belongs to " + device::path(*end.index)};
  auto done = netlink.reconfigure(args, end.socket.get());
  if (!done) return done;
  end.index = args.index;
  end.socket.reset();
  return {};
}

/// Maps identifiers to devices, by one read of all devices. Control thread.
class Backends {
 public:
  Backends(const Clock& clock, const std::string& sysfs) : clock_(clock), sysfs_(sysfs) {}
  /// Returns the devices with this identifier, as they are now.
  result<std::vector<device::Seen>> find(const std::string& backend) {
    // Identifiers change only by a command. We know our own commands, and see another program's a second later.
    if (!read_at_ || clock_.now() - *read_at_ >= kBackendsFor) {
      const auto all = read_backends(sysfs_);
      if (!all) return all.error();
      carried_.clear();
      for (const auto& [index, carried] : *all) carried_.emplace(carried, index);
      read_at_ = clock_.now();
    }
    std::vector<device::Seen> found;
    const auto [first, last] = carried_.equal_range(backend);
    for (auto place = first; place != last; ++place)
      if (auto seen = read_one(sysfs_, place->second); seen && seen->backend == backend)
        found.push_back(std::move(*seen));
    return found;
  }
  void connected(const std::string& backend, std::uint32_t index) {
    if (!read_at_) return;
    const auto [first, last] = carried_.equal_range(backend);
    if (std::none_of(first, last, [&](const auto& one) { return one.second == index; }))
      carried_.emplace(backend, index);
  }

 private:
  const Clock& clock_;
  const std::string& sysfs_;
  std::multimap<std::string, std::uint32_t> carried_;
  std::optional<time_point> read_at_;
};

/// State of the control thread. Messages on their way there share it.
struct ControlState {
  ControlState(executor control, Clock& clock, std::string root, std::string lock)
      : sysfs(std::move(root)), backends(clock, sysfs), commands(std::move(control), clock, std::move(lock)) {}
  const std::string sysfs;
  std::function<void(std::uint32_t)> dead;
  Backends backends;
  /// Devices that we disconnected, with their state in sysfs at that time. While that state is unchanged, somebody has
  /// them open.
  struct Disconnected {
    std::string backend, pid;
  };
  std::map<std::uint32_t, Disconnected> disconnected;
  Commands commands;

  void connected(const std::string& backend, std::uint32_t index) {
    disconnected.erase(index);
    backends.connected(backend, index);
  }
  void note_disconnected(std::uint32_t index, const std::string& backend) {
    if (read_backend(sysfs, index) == backend) disconnected[index] = {backend, read_pid(sysfs, index)};
  }
  void complete(device::Seen& seen) {
    const auto place = disconnected.find(seen.index);
    if (place == disconnected.end()) return;
    // If another program's process ID appears, the device was connected again.
    seen.disconnected = place->second.backend == seen.backend && place->second.pid == read_pid(sysfs, seen.index);
    if (!seen.disconnected) disconnected.erase(place);
  }
};

class Devices final : public device::Devices {
 public:
  Devices(executor control, Clock& clock, Config config)
      : control_(control),
        clock_(clock),
        counters_(config.slow_request),
        loops_(config.io_threads, config.bytes_in_flight, config.max_request_bytes, config.reserved_bytes,
               config.fd_store),
        inherited_(control, clock, *loops_.all().front(), config),
        lock_(config.commands_lock),
        write_zeroes_(config.write_zeroes),
        helper_(std::move(config.helper)),
        known_(
            std::make_shared<ControlState>(control, clock, std::move(config.sysfs), std::move(config.commands_lock))),
        netlink_(counters_, [control, known = known_](std::uint32_t index) {
          asio::post(control, [known, index] {
            if (known->dead) known->dead(index);
          });
        }) {
    auto start = [this](Commands::Turn turn) {
      netlink_.post([this, control = control_, known = known_, turn = std::move(turn)] {
        netlink_.hear();
        turn->reset();
        asio::post(control, [known] { known->commands.ended(); });
      });
    };
    known_->commands.add("", {"listening to the kernel's nbd driver", clock_.wall()}, std::move(start),
                         [](const Error&) {});
  }
  ~Devices() override { known_->commands.close(); }

  result<> ready() const override {
    if (driver_present(known_->sysfs)) return {};
    return Error{errc::failed_precondition,
                 "the kernel's nbd driver is not loaded: run `modprobe nbd nbds_max=0` on the node"};
  }
  result<std::vector<device::Seen>> inventory() const override { return completed(read_inventory(known_->sysfs)); }
  result<std::vector<device::Seen>> find(const std::string& backend) const override {
    return completed(known_->backends.find(backend));
  }
  std::string backend_of(std::uint32_t index) const override { return read_backend(known_->sysfs, index).value_or(""); }
  std::optional<device::Command> under_way(const std::string& backend) const override {
    return known_->commands.find(backend);
  }
  task<Waited> end_commands(Until until) override { return end_all(known_, until); }
  task<Waited> end_links(Until until) override {
    inherited_.discard_all();
    while (!loops_.all_ended()) {
      if (clock_.now() >= until.deadline) co_return Waited::deadline;
      co_await sleep_until(control_, clock_, clock_.now() + kLooksForEnd);
    }
    co_return Waited::ready;
  }

  result<std::unique_ptr<device::Link>> serve(image::BlockImage& image, device::ServeOptions options,
                                              std::function<void()> on_stopped) override {
    auto pair = make_socket_pair();
    if (!pair) return pair.error();
    std::unique_ptr<device::Link> link =
        std::make_unique<NbdLink>(control_, clock_, loops_.next(), image, std::move(options), std::move(pair->first),
                                  std::move(pair->second), std::move(on_stopped), counters_);
    return link;
  }

  void take(std::uint32_t index, std::string backend, Fd socket) override {
    inherited_.add(index, {std::move(backend), std::move(socket)});
  }

  bool has_inherited(const std::string& backend) const override { return inherited_.has(backend); }

  std::unique_ptr<device::Link> resume(std::uint32_t index, const std::string& backend, image::BlockImage& image,
                                       device::ServeOptions options, std::function<void()> on_stopped) override {
    auto found = inherited_.find(index, backend, image, options.read_only);
    if (!found) return nullptr;
    const bool resumed = found->inherited != nullptr;
    auto link =
        std::make_unique<NbdLink>(control_, clock_, loops_.next(), image, std::move(options), std::move(found->socket),
                                  Fd(), std::move(on_stopped), counters_, std::move(found->inherited));
    link->assign_to(index);
    link->name(backend);
    if (!resumed) link->keep(index, backend);
    return link;
  }

  task<result<std::uint32_t>> connect(device::Link& link, device::ConnectArgs args, Until until) override {
    const std::string backend = args.backend;
    NbdLink& ours = static_cast<NbdLink&>(link);
    ours.name(backend);
    inherited_.discard(backend);
    auto prepare = [this, end = ours.kernel_end(), args = std::move(args)](Commands::Turn turn) {
      auto avoid = args.avoid ? args.avoid() : std::vector<std::uint32_t>();
      return in_turn<std::uint32_t>(std::move(turn),
                                    [end, args, avoid, known = known_, zeroes = write_zeroes_](Netlink& netlink) {
                                      return connect_link(*end, netlink, args, zeroes, avoid, known->sysfs);
                                    });
    };
    auto ended = [known = known_, backend](const result<std::uint32_t>& index) {
      if (index) known->connected(backend, *index);
    };
    const auto index = co_await command<std::uint32_t>(backend, std::move(prepare), std::move(ended), until,
                                                       "connecting an nbd device for " + backend);
    if (index) ours.keep(*index, backend);
    co_return index;
  }

  task<result<>> reconnect(device::Link& link, device::ReconnectArgs args, Until until) override {
    NbdLink& ours = static_cast<NbdLink&>(link);
    const std::uint32_t index = args.index;
    const std::string backend = args.backend;
    ours.name(backend);
    inherited_.discard(index);
    result<> done;
    if (!ours.assigned_to(index)) {
      // Rule 4: wait until the kernel has seen the end of the old link.
      if (const Waited ended = co_await inherited_.ended(index, until); ended != Waited::ready)
        co_return wait_error(ended, "the end of the link that " + device::path(index) + " had");
      auto prepare = [this, end = ours.kernel_end(), args = std::move(args)](Commands::Turn turn) {
        return in_turn<void>(std::move(turn),
                             [end, args](Netlink& netlink) { return reconnect_link(*end, netlink, args); });
      };
      done = co_await command<void>(backend, std::move(prepare), {}, until, "reconnecting " + device::path(index));
    }
    // If no link of the device is dead, the kernel reports success and drops the socket.
    if (done && !ours.connected())
      done = Error{errc::unavailable,
                   device::path(index) + " did not take the new link, because its old link is still alive"};
    if (done) ours.keep(index, backend);
    co_return done;
  }

  task<result<>> resize(device::Link& link, std::uint32_t index, std::string backend, std::uint64_t bytes,
                        Until until) override {
    const NbdLink& ours = static_cast<NbdLink&>(link);
    if (!ours.connected()) co_return not_resized(index, "its link is down");
    // A command may wait for its turn, and the conditions may change meanwhile, so check them again then.
    auto prepare = [this, state = ours.link_state(), asked = std::chrono::steady_clock::now(), index, backend,
                    bytes](const Commands::Turn& turn) -> std::function<result<>()> {
      turn->reset();  // the helper takes the turn
      auto may = may_resize(*state, std::chrono::steady_clock::now() - asked);
      if (!may) return [refused = not_resized(index, may.error().text)]() -> result<> { return refused; };
      return [wanted = Resize{index, backend, bytes, known_->sysfs}, lock = lock_, program = helper_]() -> result<> {
        return helper::call(wanted, HelperOwner(lock), program);
      };
    };
    co_return co_await command<void>(backend, std::move(prepare), {}, until, "resizing " + device::path(index));
  }

  task<result<>> disconnect(std::uint32_t index, std::string backend, Until until) override {
    inherited_.discard(index);
    auto prepare = [this, index, backend](Commands::Turn turn) {
      return in_turn<void>(std::move(turn), [known = known_, index, backend](Netlink& netlink) -> result<> {
        // While the command waited for its turn, the number may have become another volume's.
        if (read_backend(known->sysfs, index) != backend) return {};
        return netlink.disconnect(index);
      });
    };
    auto ended = [known = known_, index, backend](const result<>& done) {
      if (done) known->note_disconnected(index, backend);
    };
    co_return co_await command<void>(backend, std::move(prepare), std::move(ended), until,
                                     "disconnecting " + device::path(index));
  }

  void on_link_dead(std::function<void(std::uint32_t)> dead) override { known_->dead = std::move(dead); }
  device::Counters counters() const override {
    device::Counters now = counters_.read();
    loops_.add_to(now);
    return now;
  }

 private:
  static task<Waited> end_all(std::shared_ptr<ControlState> known, Until until) {
    known->commands.close();
    co_return co_await known->commands.none().wait(until);
  }

  static Error not_resized(std::uint32_t index, const std::string& why) {
    return {errc::unavailable,
            device::path(index) +
                " is not resized now, because newer kernels would stop all nbd commands until it answers: " + why};
  }

  result<std::vector<device::Seen>> completed(result<std::vector<device::Seen>> all) const {
    if (all)
      for (auto& seen : *all) known_->complete(seen);
    return all;
  }

  /// A netlink command for the netlink thread. Its turn ends with it.
  template <class T>
  std::function<result<T>()> in_turn(Commands::Turn turn, std::function<result<T>(Netlink&)> command) {
    return [this, turn = std::move(turn), command = std::move(command)]() -> result<T> {
      netlink_.hear();
      auto netlink = Netlink::open();
      auto done = netlink ? command(*netlink) : result<T>(netlink.error());
      turn->reset();
      return done;
    };
  }

  /// `prepare` is called on the control thread once the command's turn has come, and returns the work for the netlink
  /// thread. A wait that ends early leaves that running. It is under way until the control thread knows its end. A
  /// command that has not begun is dropped. `ended` runs on the control thread, before the caller gets the result.
  template <class T>
  task<result<T>> command(std::string backend, std::function<std::function<result<T>()>(Commands::Turn)> prepare,
                          std::function<void(const result<T>&)> ended, Until until, std::string what) {
    Promise<T> promise(control_, clock_);
    auto future = promise.future();
    auto start = [this, promise, prepare = std::move(prepare), ended = std::move(ended)](Commands::Turn turn) {
      netlink_.post([control = control_, known = known_, promise, ended,
                     run = std::optional(prepare(std::move(turn)))]() mutable {
        auto done = (*run)();
        run.reset();  // frees the kernel's end of a link, which it shares
        asio::post(control, [known, ended, done] {
          if (ended) ended(done);
          known->commands.ended();
        });
        promise.set(std::move(done));
      });
    };
    const auto ticket =
        known_->commands.add(backend, {what, clock_.wall()}, std::move(start),
                             [promise, what](const Error& why) { promise.set(with_context(what, why)); });
    if (!ticket) co_return Error{errc::unavailable, what + ": the agent is leaving"};
    auto outcome = co_await future.get(until, std::move(what));
    known_->commands.leave(ticket);
    co_return outcome;
  }

  executor control_;
  Clock& clock_;
  Counters counters_;
  IoLoops loops_;
  InheritedLinks inherited_;
  const std::string lock_;
  const bool write_zeroes_;
  const HelperProgram helper_;
  std::shared_ptr<ControlState> known_;
  NetlinkThread netlink_;
};

}  // namespace

std::unique_ptr<device::Devices> make_devices(executor control, Clock& clock, Config config) {
  return std::make_unique<Devices>(std::move(control), clock, std::move(config));
}

}  // namespace corbd::nbd
