// The control side of nbd: the view of sysfs and the effects of netlink.
#include <algorithm>

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

class Devices final : public device::Devices {
 public:
  explicit Devices(World& world) : world_(world) {}
  result<> ready() const override { return {}; }

  result<std::vector<device::Seen>> inventory() const override {
    ++world_.kernel.inventories;
    return seen();
  }
  /// The real one knows the devices' names and reads only those of this one.
  result<std::vector<device::Seen>> find(const std::string& backend) const override {
    auto found = seen();
    std::erase_if(found, [&](const auto& device) { return device.backend != backend; });
    return found;
  }

  result<std::unique_ptr<device::Link>> serve(image::BlockImage& image, device::ServeOptions options,
                                              std::function<void()> on_stopped) override {
    if (world_.agent.no_descriptor) return Error{errc::exhausted, "too many open files"};
    look_at_image(image, options.read_only);
    std::unique_ptr<device::Link> link =
        std::make_unique<FakeLink>(world_, image, std::move(options), std::move(on_stopped));
    return link;
  }

  void take(std::uint32_t index, std::string, Fd) override {
    const auto place = world_.kernel.inherited.find(index);
    if (place == world_.kernel.inherited.end() || place->second.of != &world_) return;
    place->second.taken = true;
    world_.loop().outside_in(std::chrono::seconds(60), [&world = world_, index, link = place->second.link] {
      const auto still = world.kernel.inherited.find(index);
      if (still != world.kernel.inherited.end() && still->second.link == link) world.kernel.discard_inherited(index);
    });
  }

  bool has_inherited(const std::string& backend) const override {
    const auto is_it = [&](const auto& entry) {
      const KernelDevice* known = world_.kernel.by_index(entry.first);
      return entry.second.of == &world_ && entry.second.taken && known != nullptr && known->backend == backend;
    };
    return std::ranges::any_of(world_.kernel.inherited, is_it);
  }

  std::unique_ptr<device::Link> resume(std::uint32_t index, const std::string& backend, image::BlockImage& image,
                                       device::ServeOptions options, std::function<void()> on_stopped) override {
    const auto place = world_.kernel.inherited.find(index);
    if (place == world_.kernel.inherited.end() || place->second.of != &world_ || !place->second.taken) return nullptr;
    KernelDevice* known = world_.kernel.by_index(index);
    if (known == nullptr || known->backend != backend || known->disconnected || !known->alive ||
        known->link != place->second.link || books_are_bad(place->second)) {
      world_.kernel.discard_inherited(index);
      return nullptr;
    }
    InheritedLink before = std::move(place->second);
    world_.kernel.inherited.erase(place);
    look_at_image(image, options.read_only);
    auto link = std::make_unique<FakeLink>(world_, image, std::move(options), std::move(on_stopped));
    if (known->image_id != link->image_id) world_.broke("a device got another image behind it");
    if (link->tombstone()) look_at_tombstone(world_, *known);
    link->assigned = index;
    link->resumed = true;
    link->keep();
    world_.kernel.resume_link(*known, link->serial);
    link->owe(std::move(before.owed));
    return link;
  }

  task<result<std::uint32_t>> connect(device::Link& link, device::ConnectArgs args, Until until) override {
    auto& ours = static_cast<FakeLink&>(link);
    for (const auto& known : world_.kernel.devices)
      if (known.backend == args.backend) discard(known.index);
    KernelDevice made;
    made.link = ours.serial;
    made.image_id = ours.image_id;
    made.visits = ours.visits;
    made.backend = args.backend;
    made.size = args.size;
    made.read_only = args.read_only;
    made.trim = args.trim;
    made.flush = args.send_flush;
    made.unscanned = true;
    made.dead_conn_timeout_s = args.dead_conn_timeout_s;
    const auto index = std::make_shared<std::uint32_t>(0);
    const auto numbers = std::make_shared<std::vector<std::uint32_t>>();
    auto done = co_await world_.calls.ask_driver(
        "kernel connect", args.backend, until,
        {.effect = [&world = world_, made, numbers, index] { return make_device(world, made, *numbers, *index); },
         .begins = [&world = world_, avoid = args.avoid,
                    numbers] { *numbers = free_numbers(world, avoid ? avoid() : std::vector<std::uint32_t>()); }});
    if (!done) co_return done.error();
    ours.keep();
    co_return *index;
  }

  task<result<>> reconnect(device::Link& link, device::ReconnectArgs args, Until until) override {
    auto& ours = static_cast<FakeLink&>(link);
    // This needs no command.
    if (ours.resumed && ours.assigned == args.index) co_return still_serves(ours);
    const int serial = ours.serial;
    if (const auto kept = world_.kernel.inherited.find(args.index);
        kept != world_.kernel.inherited.end() && kept->second.of == &world_) {
      if (kept->second.of_keeper) world_.broke("a kept link was shut, and nobody tried to go on with it");
      world_.kernel.discard_inherited(args.index);
    }
    auto effect = [&world = world_, serial, args] {
      KernelDevice* known = world.kernel.by_index(args.index);
      if (known != nullptr && args.foreign) known->request_timeout = false;
      auto given = give_back(world, serial, args.index, args.backend);
      if (given) known->dead_conn_timeout_s = args.dead_conn_timeout_s;
      return given;
    };
    auto done = co_await world_.calls.ask_driver("kernel reconfigure", args.backend, until, {.effect = effect});
    if (done) ours.keep();
    co_return done;
  }

  task<result<>> resize(device::Link& link, std::uint32_t index, std::string backend, std::uint64_t bytes,
                        Until until) override {
    const int serial = static_cast<FakeLink&>(link).serial;
    const time_point asked = world_.loop().clock.now();
    auto may = [&world = world_, serial, index, backend, asked]() -> result<> {
      const FakeLink* ours = find_link(world, serial);
      const bool serving = ours != nullptr && ours->state() == device::Link::State::serving;
      if (!serving || ours->oldest() > std::chrono::seconds(1) ||
          world.loop().clock.now() - asked > std::chrono::seconds(1))
        return Error{errc::unavailable, "not resized while its link is down or a request waits for the cluster"};
      const KernelDevice* known = world.kernel.by_index(index);
      if (known == nullptr || known->backend != backend || known->disconnected)
        return Error{errc::not_found, "not configured"};
      if (!known->alive) world.broke("a device was resized on a dead link");
      return {};
    };
    auto effect = [&world = world_, index, bytes]() -> result<> {
      KernelDevice* known = world.kernel.by_index(index);
      if (bytes < known->size) world.broke("a device was made smaller");
      known->size = bytes;
      known->unscanned = true;
      return {};
    };
    co_return co_await world_.calls.ask_driver(
        "kernel resize", backend, until,
        {.effect = std::move(effect), .may = std::move(may), .freezes = index, .by_helper = true});
  }

  task<result<>> disconnect(std::uint32_t index, std::string backend, Until until) override {
    discard(index);
    // It is checked when the command begins; then it waits in the kernel.
    const auto link = std::make_shared<int>(0);
    auto begins = [&world = world_, index, backend, link] {
      const KernelDevice* begun = world.kernel.by_index(index);
      if (begun != nullptr && begun->backend == backend) *link = begun->link;
    };
    auto effect = [&world = world_, index, link]() -> result<> {
      if (*link == 0) return {};
      for (const auto& mount : world.kernel.mounts) {
        if (shows_device(mount, index)) world.broke("a mounted device was disconnected");
      }
      const KernelDevice* known = world.kernel.by_index(index);
      if (known != nullptr && (known->mapping || known->integrity))
        world.broke("a device was disconnected below an open mapping");
      const auto is_write = [](const KernelRequest& request) { return request.write; };
      if (known != nullptr && std::any_of(known->requests.begin(), known->requests.end(), is_write) &&
          !world.agent.given_up.contains(known->backend))
        world.broke("a device was disconnected with writes waiting in it");
      world.kernel.disconnect(index);
      return {};
    };
    auto ended = [&world = world_, index, link](const result<>& done) {
      if (done) world.kernel.disconnected_by_us.insert({&world, index, *link});
    };
    co_return co_await world_.calls.ask_driver("disconnect", std::move(backend), until,
                                               {.effect = effect, .begins = begins, .ended = ended});
  }

  std::optional<device::Command> under_way(const std::string& backend) const override {
    for (const auto& command : world_.calls.under_way)
      if (command.backend == backend) return command.told;
    return std::nullopt;
  }
  task<Waited> end_commands(Until until) override {
    while (!world_.calls.under_way.empty() || world_.kernel.frozen) {
      if (world_.loop().clock.now() >= until.deadline) co_return Waited::deadline;
      co_await sleep_until(world_.loop().control(), world_.loop().clock,
                           world_.loop().clock.now() + std::chrono::milliseconds(10));
    }
    co_return Waited::ready;
  }

  task<Waited> end_links(Until until) override {
    const auto now = world_.loop().clock.now();
    for (const auto& [index, given] : std::map(world_.kernel.inherited))
      if (given.taken) discard(index);
    for (const auto& [serial, link] : world_.kernel.links)
      if (&link->process() == &world_ && link->shut_early_at(now) && now < world_.agent.leaves_by)
        world_.broke("the agent left before its time was up, and a request that it had read has no answer");
    const auto is_over = [&](const auto& one) { return &one.second->process() != &world_ || one.second->over(); };
    while (!std::ranges::all_of(world_.kernel.links, is_over)) {
      if (world_.loop().clock.now() >= until.deadline) co_return Waited::deadline;
      co_await sleep_until(world_.loop().control(), world_.loop().clock,
                           world_.loop().clock.now() + std::chrono::milliseconds(2));
    }
    co_return Waited::ready;
  }

  void on_link_dead(std::function<void(std::uint32_t)> dead) override {
    world_.kernel.tell_dead[&world_] = std::move(dead);
  }

 private:
  /// Discards a link of this process.
  void discard(std::uint32_t index) {
    const auto place = world_.kernel.inherited.find(index);
    if (place != world_.kernel.inherited.end() && place->second.of == &world_) world_.kernel.discard_inherited(index);
  }
  /// Makes the books of a kept link bad, rarely: the link is then shut.
  bool books_are_bad(const InheritedLink& given) const {
    return given.of_keeper && world_.hazards != nullptr && world_.hazards->any(duration(24)).count() == 0;
  }

  void look_at_image(const image::BlockImage& image, bool read_only) const {
    const auto* opened = dynamic_cast<const FakeOpened*>(&image);
    const FakeImage* of = opened == nullptr ? nullptr : world_.cluster.by_id(image.key().image_id);
    if (read_only != image.read_only()) world_.broke("a session and its image differ in what may be written");
    // A client that was cut off a moment ago cannot know it.
    if (of != nullptr && of->exclusive && !of->shared && !read_only && of->lock_owner != opened->client() &&
        !world_.cluster.refuses(opened->client()))
      world_.broke("a session was started without the lock");
  }

  std::vector<device::Seen> seen() const {
    std::vector<device::Seen> all;
    for (const auto& known : world_.kernel.devices) {
      if (known.kind != device::Kind::nbd) continue;
      device::Seen seen;
      seen.index = known.index;
      seen.backend = known.backend;
      seen.size = known.size;
      seen.dev_major = 43;
      seen.dev_minor = known.index * 32;
      seen.io_timeout_ms = known.io_timeout_ms;
      seen.waiting = static_cast<std::uint32_t>(
          std::ranges::count_if(known.requests, [](const KernelRequest& request) { return request.sent_on != 0; }));
      seen.completed = seen.waiting > 0 ? known.completed : 0;
      seen.disconnected =
          known.disconnected && world_.kernel.disconnected_by_us.contains({&world_, known.index, known.link});
      seen.read_only = world_.kernel.takes_no_write(known);
      seen.holders = holders_of(known);
      all.push_back(seen);
    }
    return all;
  }

  static FakeLink* find_link(World& world, int serial) {
    const auto place = world.kernel.links.find(serial);
    return place == world.kernel.links.end() ? nullptr : place->second;
  }

  /// Chooses when the command begins. A number may be taken by the time the kernel carries it out.
  static std::vector<std::uint32_t> free_numbers(World& world, const std::vector<std::uint32_t>& avoid) {
    std::vector<std::uint32_t> free;
    for (std::uint32_t number = 0; free.size() < 8; ++number)
      if (world.kernel.by_index(number) == nullptr && std::ranges::find(avoid, number) == avoid.end())
        free.push_back(number);
    return free;
  }

  static result<> make_device(World& world, KernelDevice made, const std::vector<std::uint32_t>& numbers,
                              std::uint32_t& index) {
    FakeLink* link = find_link(world, made.link);
    if (link != nullptr && link->assigned) {
      index = *link->assigned;  // an earlier command did it, whose caller did not wait for its end
      return {};
    }
    for (const auto& known : world.kernel.devices)
      if (known.link == made.link) return {};
    if (world.kernel.driver == Kernel::Driver::missing)
      return Error{errc::failed_precondition, "the kernel's nbd driver is not there: run `modprobe nbd`"};
    if (world.kernel.driver == Kernel::Driver::full) return Error{errc::exhausted, "no device is free"};
    for (const auto& known : world.kernel.devices)
      if (known.backend == made.backend) world.broke("a second device was made for one volume");
    made.index =
        *std::ranges::find_if(numbers, [&](std::uint32_t number) { return world.kernel.by_index(number) == nullptr; });
    for (const auto& mount : world.kernel.mounts)
      if (mount.root == "/nbd" + std::to_string(made.index) && mount.target.find(made.backend) == std::string::npos)
        world.broke("a device got the number of one that another volume's pods were given: " + mount.target);
    index = made.index;
    if (const auto timer = world.kernel.timers.find(made.index); timer != world.kernel.timers.end())
      made.io_timeout_ms = timer->second;
    world.kernel.devices.push_back(made);
    // A process that died in the syscall leaves a device whose link is dead from the start.
    if (link == nullptr) return {};
    link->assigned = made.index;
    world.kernel.connect_link(world.kernel.devices.back(), made.link);
    if (link->state() != device::Link::State::serving) world.kernel.link_ended(made.link);
    return {};
  }

  static result<> give_back(World& world, int serial, std::uint32_t index, const std::string& backend) {
    FakeLink* link = find_link(world, serial);
    if (link == nullptr) return Error{errc::unavailable, "no process"};
    if (link->assigned == index) return still_serves(*link);
    KernelDevice* known = world.kernel.by_index(index);
    if (known == nullptr || known->backend != backend || known->disconnected)
      return Error{errc::not_found, "not configured"};
    if (known->alive) {
      // The kernel reports success and drops the socket. A look at our end shows that at once
      // (nbd::NbdLink::connected); our side reads that end now or in a moment.
      world.trace("the kernel drops the socket: the old link of " + device::path(index) + " lives");
      if (world.hazards != nullptr && world.hazards->any(duration(4)).count() == 0) {
        world.loop().outside_in(std::chrono::milliseconds(5), [&world, serial] {
          if (FakeLink* late = find_link(world, serial)) late->stop(device::Link::State::closed, 0);
        });
      } else {
        link->stop(device::Link::State::closed, 0);
      }
      return Error{errc::unavailable, "the old link lives"};
    }
    if (known->image_id != link->image_id) world.broke("a device got another image behind it");
    if (link->tombstone()) look_at_tombstone(world, *known);
    link->assigned = index;
    world.kernel.connect_link(*known, serial);
    if (link->state() != device::Link::State::serving) world.kernel.link_ended(serial);
    return still_serves(*link);
  }

  static result<> still_serves(const FakeLink& link) {
    if (link.state() == device::Link::State::serving) return {};
    return Error{errc::unavailable, "the link ended meanwhile"};
  }

  /// Checks rule 2b.
  static void look_at_tombstone(World& world, const KernelDevice& device) {
    if (world.agent.given_up.contains(device.backend)) return;
    const auto since = world.lost_since(device.image_id);
    if (!since || world.loop().clock.now() - *since < std::chrono::seconds(60))
      world.broke("a device was given up that was not proven lost for 60 s");
  }

  World& world_;
};

}  // namespace

std::unique_ptr<device::Devices> make_devices(World& world) { return std::make_unique<Devices>(world); }

}  // namespace corbd::test
