#include "support/kernel_contract.hpp"

#include <algorithm>

#include "support/catch.hpp"

namespace corbd::test {
namespace {

using namespace std::chrono_literals;

const std::string kVolume = "contract", kOther = "contract-other", kMapping = "luks-rbd-contract";
const Secret kPassphrase("passphrase");

/// A link that is ended before its object is destroyed.
class Served {
 public:
  explicit Served(ContractKernel& on, device::ServeOptions options = false) : on_(on) {
    auto made = on.devices().serve(on.image(), std::move(options), {});
    REQUIRE(made);
    link_ = std::move(*made);
  }
  ~Served() { end(); }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  device::Link& operator*() { return *link_; }
  /// The kernel has seen it then. Operations of the image may still be under way.
  void shut() {
    link_->shut();
    on_.run(link_->ended(on_.in(20s)));
  }
  void end() {
    shut();
    on_.run(link_->idle(on_.in(20s)));
  }

 private:
  ContractKernel& on_;
  std::unique_ptr<device::Link> link_;
};

template <class T>
errc code(const result<T>& answer) {
  UNSCOPED_INFO((answer ? "" : answer.error().text));
  return answer ? errc::ok : answer.error().code;
}

device::ConnectArgs args(ContractKernel& on, const std::string& backend = kVolume) {
  device::ConnectArgs of;
  of.backend = backend;
  of.size = on.image().size();
  return of;
}

std::uint32_t connect(ContractKernel& on, Served& link, const device::ConnectArgs& with) {
  const auto index = on.run(on.devices().connect(*link, with, on.in(20s)));
  REQUIRE(code(index) == errc::ok);
  return *index;
}
std::uint32_t connect(ContractKernel& on, Served& link) { return connect(on, link, args(on)); }

errc reconnect(ContractKernel& on, Served& link, std::uint32_t index, const std::string& backend = kVolume) {
  return code(on.run(on.devices().reconnect(*link, {index, backend}, on.in(20s))));
}

errc disconnect(ContractKernel& on, std::uint32_t index, const std::string& backend = kVolume) {
  return code(on.run(on.devices().disconnect(index, backend, on.in(20s))));
}

std::optional<device::Seen> seen(ContractKernel& on, const std::string& backend = kVolume) {
  const auto all = on.devices().inventory();
  REQUIRE(all);
  const auto place = std::ranges::find(*all, backend, &device::Seen::backend);
  return place == all->end() ? std::nullopt : std::optional(*place);
}

bool goes(ContractKernel& on) {
  return on.drive([&] { return !seen(on); }, 20s);
}
bool answers(ContractKernel& on, int count) {
  return on.drive([&] { return on.answered() == count; }, 20s);
}
bool fails(ContractKernel& on, int count) {
  return on.drive([&] { return on.failed() == count; }, 20s);
}
bool waits(ContractKernel& on) {
  const int before = on.answered() + on.failed();
  return !on.drive([&] { return on.answered() + on.failed() != before; }, 1s);
}
template <class T>
bool waits(ContractKernel& on, const std::shared_ptr<std::optional<T>>& call) {
  return !on.drive([&] { return call->has_value(); }, 1s);
}
template <class T>
errc ends(ContractKernel& on, const std::shared_ptr<std::optional<T>>& call) {
  if (!on.drive([&] { return call->has_value(); }, 20s)) return errc::timed_out;
  return code(**call);
}

void tune(ContractKernel& on, std::uint32_t index, bool read_only = false) {
  host::NumberUse use;
  use.read_only = read_only;
  CHECK(code(on.run(on.filesystems().tune(device::name({}, index), use, {}, on.in(20s)))) == errc::ok);
}

errc unused(ContractKernel& on, std::uint32_t index) {
  return code(on.run(on.filesystems().check_unused(device::path(index), {}, on.in(20s))));
}

errc mount(ContractKernel& on, const std::string& device, const std::string& target, const std::string& flags = "") {
  return code(on.run(on.mounts().mount(device, "ext4", target, flags, {}, on.in(20s))));
}

errc unmount(ContractKernel& on, const std::string& target) {
  return code(on.run(on.mounts().unmount(target, true, {}, on.in(20s))));
}

void make_filesystem(ContractKernel& on, const std::string& device) {
  REQUIRE(code(on.run(on.filesystems().mkfs(device, "ext4", "", {}, {}, on.in(40s)))) == errc::ok);
}

std::optional<host::Mount> mounted(ContractKernel& on, const std::string& target) {
  const auto all = on.mounts().table();
  REQUIRE(all);
  const auto there = (*all)->at(target);
  return there.empty() ? std::nullopt : std::optional(*there.begin()->second);
}

/// A device with a filesystem that is mounted.
struct Mounted {
  explicit Mounted(ContractKernel& on) : on(on), link(on), index(connect(on, link)) {
    make_filesystem(on, device::path(index));
    REQUIRE(mount(on, device::path(index), target) == errc::ok);
  }
  ContractKernel& on;
  Served link;
  const std::uint32_t index;
  const std::string target = on.folder() + "/staged", pod = on.folder() + "/pod";
  errc bind(const std::string& flags = "") {
    return code(on.run(on.mounts().bind(target, pod, false, flags, {}, on.in(20s))));
  }
};

// --- devices

void looks(ContractKernel& on) {
  Served link(on);
  const auto index = connect(on, link);
  const auto shown = seen(on);
  REQUIRE(shown);
  CHECK(shown->index == index);
  CHECK(shown->size == on.image().size());
  CHECK(shown->dev_major == 43);
  CHECK(shown->dev_minor == index * 32);
  CHECK(shown->waiting == 0);
  CHECK(shown->completed == 0);
  CHECK(shown->io_timeout_ms > 0);
  CHECK_FALSE(shown->read_only);
  CHECK_FALSE(shown->disconnected);
  CHECK(shown->holders.empty());
  CHECK(on.devices().find(kVolume).value().size() == 1);
  CHECK(on.devices().find(kOther).value().empty());
  on.begin_io(index, true);
  on.begin_io(index, false);
  CHECK(answers(on, 2));
}

void numbers(ContractKernel& on) {
  Served first(on), second(on), third(on);
  const auto index = connect(on, first);
  CHECK(connect(on, first) == index);
  auto with = args(on, kOther);
  with.avoid = [index] { return std::vector<std::uint32_t>{index + 1}; };
  CHECK(connect(on, second, with) == index + 2);
  CHECK(disconnect(on, index) == errc::ok);
  CHECK(goes(on));
  CHECK(connect(on, third) == index);
}

void dead_link(ContractKernel& on) {
  std::vector<std::uint32_t> told;
  on.devices().on_link_dead([&](std::uint32_t index) { told.push_back(index); });
  Served first(on), second(on);
  const auto index = connect(on, first);
  on.begin_io(index, false);
  REQUIRE(answers(on, 1));
  first.end();
  CHECK(on.drive([&] { return !told.empty(); }, 20s));
  CHECK(told == std::vector{index});
  on.devices().on_link_dead([](std::uint32_t) {});
  on.begin_io(index, true);
  CHECK(waits(on));
  REQUIRE(seen(on));
  CHECK(seen(on)->size == on.image().size());
  CHECK(seen(on)->waiting == 0);
  CHECK(reconnect(on, second, index) == errc::ok);
  CHECK(answers(on, 2));
}

void left_behind(ContractKernel& on) {
  Served first(on), second(on);
  const auto index = connect(on, first);
  tune(on, index);
  on.begin_io(index, true);
  REQUIRE(answers(on, 1));
  on.answers(false);
  on.begin_io(index, true);
  CHECK(on.drive([&] { return seen(on)->waiting == 1; }, 20s));
  const auto completed = seen(on)->completed;
  CHECK(completed > 0);
  first.shut();
  on.answers(true);
  first.end();
  CHECK(waits(on));
  CHECK(seen(on)->waiting == 1);
  CHECK(seen(on)->completed == completed);
  CHECK(reconnect(on, second, index) == errc::ok);
  CHECK(answers(on, 2));
  CHECK(seen(on)->waiting == 0);
}

void given_up(ContractKernel& on) {
  Served link(on), next(on);
  auto with = args(on);
  with.dead_conn_timeout_s = 4;
  const auto index = connect(on, link, with);
  // The first program that opens a device reads its partition table, and waits more than once for it.
  on.begin_io(index, false);
  REQUIRE(answers(on, 1));
  link.end();
  on.begin_io(index, false);
  CHECK(waits(on));
  CHECK(fails(on, 1));
  REQUIRE(seen(on));
  CHECK(reconnect(on, next, index) == errc::ok);
  on.begin_io(index, false);
  CHECK(answers(on, 2));
}

void second_link(ContractKernel& on) {
  Served first(on), second(on);
  const auto index = connect(on, first);
  CHECK(reconnect(on, second, index) == errc::unavailable);
  CHECK((*first).state() == device::Link::State::serving);
  CHECK(on.drive([&] { return (*second).state() == device::Link::State::closed; }, 20s));
  on.begin_io(index, false);
  CHECK(answers(on, 1));
}

void wrong_device(ContractKernel& on) {
  Served first(on), second(on);
  const auto index = connect(on, first);
  first.end();
  CHECK(reconnect(on, second, index, kOther) == errc::not_found);
  CHECK(reconnect(on, second, index + 7) == errc::not_found);
  CHECK(reconnect(on, second, index) == errc::ok);
}

void disconnected(ContractKernel& on) {
  Served link(on);
  const auto index = connect(on, link);
  on.begin_io(index, false);
  REQUIRE(answers(on, 1));
  CHECK(disconnect(on, index, kOther) == errc::ok);
  CHECK(seen(on));
  link.end();
  on.begin_io(index, false);
  CHECK(waits(on));
  CHECK(disconnect(on, index) == errc::ok);
  CHECK(fails(on, 1));
  CHECK(goes(on));
  CHECK(disconnect(on, index) == errc::ok);
}

void said_goodbye(ContractKernel& on) {
  Served link(on);
  const auto index = connect(on, link);
  CHECK(disconnect(on, index) == errc::ok);
  CHECK(on.drive([&] { return (*link).state() == device::Link::State::closed; }, 20s));
}

void held_open(ContractKernel& on) {
  Served link(on), next(on);
  const auto index = connect(on, link);
  on.open_device(index);
  CHECK(unused(on, index) == errc::ok);
  const bool by_us = GENERATE(true, false);
  if (by_us)
    CHECK(disconnect(on, index) == errc::ok);
  else
    on.disconnect(index);
  REQUIRE(seen(on));
  CHECK(seen(on)->disconnected == by_us);
  CHECK(reconnect(on, next, index) == errc::not_found);
  on.begin_io(index, false);
  CHECK(fails(on, 1));
  CHECK(seen(on));
  on.close_device(index);
  CHECK(goes(on));
}

void bound(ContractKernel& on) {
  Served link(on);
  const auto index = connect(on, link);
  const auto target = on.folder() + "/node";
  REQUIRE(code(on.run(on.mounts().bind(device::path(index), target, true, "", {}, on.in(20s)))) == errc::ok);
  const auto shown = mounted(on, target);
  REQUIRE(shown);
  CHECK(shown->fstype == "devtmpfs");
  CHECK(shown->root == "/" + device::name({}, index));
  CHECK(unused(on, index) == errc::ok);
  on.disconnect(index);
  CHECK(goes(on));
  CHECK(mounted(on, target));
  CHECK(unmount(on, target) == errc::ok);
  CHECK_FALSE(mounted(on, target));
}

void kept_flag(ContractKernel& on) {
  Served first(on), second(on);
  const auto index = connect(on, first);
  on.set_read_only(index);
  CHECK(seen(on)->read_only);
  CHECK(disconnect(on, index) == errc::ok);
  REQUIRE(goes(on));
  REQUIRE(connect(on, second) == index);
  CHECK(seen(on)->read_only);
  tune(on, index);
  CHECK_FALSE(seen(on)->read_only);
  on.begin_io(index, true);
  CHECK(answers(on, 1));
  tune(on, index, true);
  CHECK(seen(on)->read_only);
  // Tune it again for the number's next owner.
  tune(on, index);
}

void kept_timer(ContractKernel& on) {
  Served first(on), second(on);
  const auto index = connect(on, first);
  tune(on, index);
  CHECK(seen(on)->io_timeout_ms == 1000);
  CHECK(disconnect(on, index) == errc::ok);
  REQUIRE(goes(on));
  REQUIRE(connect(on, second) == index);
  CHECK(seen(on)->io_timeout_ms == 1000);
}

void connected_read_only(ContractKernel& on) {
  Served first(on), second(on);
  auto with = args(on);
  with.read_only = true;
  const auto index = connect(on, first, with);
  CHECK(seen(on)->read_only);
  CHECK(code(on.run(on.filesystems().tune(device::name({}, index), {}, {}, on.in(20s)))) == errc::failed_precondition);
  CHECK(seen(on)->read_only);
  CHECK(disconnect(on, index) == errc::ok);
  REQUIRE(goes(on));
  REQUIRE(connect(on, second) == index);
  CHECK_FALSE(seen(on)->read_only);
}

void grows(ContractKernel& on) {
  Served link(on), dead(on);
  auto with = args(on);
  with.size /= 2;
  const auto index = connect(on, link, with);
  const auto resize = [&](Served& by) {
    return code(on.run(on.devices().resize(*by, index, kVolume, on.image().size(), on.in(20s))));
  };
  dead.end();
  CHECK(resize(dead) == errc::unavailable);
  CHECK(seen(on)->size == with.size);
  CHECK(resize(link) == errc::ok);
  CHECK(seen(on)->size == on.image().size());
  on.begin_io(index, false);
  CHECK(answers(on, 1));
  link.end();
  Served next(on);
  CHECK(reconnect(on, next, index) == errc::ok);
  CHECK(seen(on)->size == on.image().size());
}

// --- mounts

void in_use(ContractKernel& on) {
  Mounted volume(on);
  const auto shown = mounted(on, volume.target);
  REQUIRE(shown);
  CHECK(shown->fstype == "ext4");
  CHECK(shown->dev_major == 43);
  CHECK(shown->dev_minor == volume.index * 32);
  CHECK(shown->root == "/");
  CHECK(unused(on, volume.index) == errc::in_use);
  REQUIRE(volume.bind() == errc::ok);
  CHECK(unmount(on, volume.target) == errc::ok);
  CHECK_FALSE(mounted(on, volume.target));
  CHECK(unused(on, volume.index) == errc::in_use);
  CHECK(unmount(on, volume.pod) == errc::ok);
  CHECK(unused(on, volume.index) == errc::ok);
  CHECK(unmount(on, volume.pod) == errc::ok);
}

void read_only_flags(ContractKernel& on) {
  Mounted volume(on);
  REQUIRE(volume.bind("ro") == errc::ok);
  CHECK(mounted(on, volume.pod)->read_only);
  CHECK_FALSE(mounted(on, volume.pod)->filesystem_read_only);
  CHECK_FALSE(mounted(on, volume.target)->read_only);
  REQUIRE(unmount(on, volume.pod) == errc::ok);
  REQUIRE(unmount(on, volume.target) == errc::ok);
  REQUIRE(mount(on, device::path(volume.index), volume.target, "ro") == errc::ok);
  CHECK(mounted(on, volume.target)->filesystem_read_only);
  REQUIRE(volume.bind() == errc::ok);
  CHECK(mounted(on, volume.pod)->filesystem_read_only);
}

void read_only_device(ContractKernel& on) {
  Mounted volume(on);
  REQUIRE(unmount(on, volume.target) == errc::ok);
  tune(on, volume.index, true);
  CHECK(mount(on, device::path(volume.index), volume.target) != errc::ok);
  CHECK_FALSE(mounted(on, volume.target));
  CHECK(mount(on, device::path(volume.index), volume.target, "ro") == errc::ok);
  REQUIRE(unmount(on, volume.target) == errc::ok);
  tune(on, volume.index);
}

void other_content(ContractKernel& on) {
  Served link(on);
  const auto index = connect(on, link);
  const auto device = device::path(index), target = on.folder() + "/staged";
  const auto probe = [&] { return on.run(on.filesystems().probe(device, {}, on.in(20s))).value(); };
  CHECK(probe().kind == host::Probe::Kind::nothing);
  CHECK(mount(on, device, target) == errc::failed_precondition);
  make_filesystem(on, device);
  CHECK(probe().kind == host::Probe::Kind::filesystem);
  CHECK(probe().type == "ext4");
  CHECK(mount(on, device, target) == errc::ok);
}

void busy(ContractKernel& on) {
  Mounted volume(on);
  REQUIRE(volume.bind() == errc::ok);
  on.open_file(volume.pod);
  CHECK(unmount(on, volume.pod) == errc::in_use);
  CHECK(mounted(on, volume.pod));
  CHECK(unmount(on, volume.target) == errc::ok);
  on.close_file(volume.pod);
  CHECK(unmount(on, volume.pod) == errc::ok);
}

void lazily(ContractKernel& on) {
  Mounted volume(on);
  on.open_file(volume.target);
  on.unmount_lazily(volume.target);
  CHECK_FALSE(mounted(on, volume.target));
  CHECK(unused(on, volume.index) == errc::in_use);
  on.disconnect(volume.index);
  CHECK_FALSE(on.drive([&] { return !seen(on); }, 1s));
  on.close_file(volume.target);
  CHECK(goes(on));
}

void unserved_mount(ContractKernel& on) {
  Mounted volume(on);
  volume.link.end();
  const auto gone = on.begin(on.mounts().unmount(volume.target, true, {}, on.in(20s)));
  CHECK(waits(on, gone));
  Served next(on);
  CHECK(reconnect(on, next, volume.index) == errc::ok);
  CHECK(ends(on, gone) == errc::ok);
  CHECK(unused(on, volume.index) == errc::ok);
}

void unserved_reader(ContractKernel& on) {
  Mounted volume(on);
  REQUIRE(unmount(on, volume.target) == errc::ok);
  REQUIRE(mount(on, device::path(volume.index), volume.target, "ro") == errc::ok);
  volume.link.end();
  CHECK(unmount(on, volume.target) == errc::ok);
  CHECK(unused(on, volume.index) == errc::ok);
}

void unserved_bind(ContractKernel& on) {
  Mounted volume(on);
  REQUIRE(volume.bind() == errc::ok);
  volume.link.end();
  CHECK(code(on.run(on.mounts().unmount(volume.pod, false, {}, on.in(20s)))) == errc::ok);
  Served next(on);
  CHECK(reconnect(on, next, volume.index) == errc::ok);
}

void disconnected_mount(ContractKernel& on) {
  Mounted volume(on);
  on.disconnect(volume.index);
  CHECK(seen(on));
  CHECK(mounted(on, volume.target));
  CHECK(unmount(on, volume.target) == errc::ok);
  CHECK(goes(on));
}

void unserved_device(ContractKernel& on) {
  Served link(on), next(on);
  const auto index = connect(on, link);
  on.begin_io(index, false);
  REQUIRE(answers(on, 1));
  link.end();
  CHECK(unused(on, index) == errc::ok);
  const auto probe = on.begin(on.filesystems().probe(device::path(index), {}, on.in(20s)));
  CHECK(waits(on, probe));
  CHECK(reconnect(on, next, index) == errc::ok);
  CHECK(ends(on, probe) == errc::ok);
}

void first_open(ContractKernel& on) {
  Served first(on), second(on), third(on);
  const auto index = connect(on, first);
  first.end();
  const auto look = on.begin(on.filesystems().check_unused(device::path(index), {}, on.in(20s)));
  CHECK(waits(on, look));
  CHECK(reconnect(on, second, index) == errc::ok);
  CHECK(ends(on, look) == errc::ok);
  // The table is read once, and again after a growth.
  second.end();
  CHECK(unused(on, index) == errc::ok);
  CHECK(reconnect(on, third, index) == errc::ok);
}

void filesystem_grows(ContractKernel& on) {
  Served link(on);
  auto with = args(on);
  with.size /= 2;
  const auto index = connect(on, link, with);
  const auto device = device::path(index), target = on.folder() + "/staged";
  make_filesystem(on, device);
  REQUIRE(mount(on, device, target) == errc::ok);
  const auto bytes = [&] {
    return on.run(on.filesystems().extent(device, "ext4", target, {}, on.in(20s))).value().bytes;
  };
  CHECK(bytes() == with.size);
  REQUIRE(code(on.run(on.devices().resize(*link, index, kVolume, on.image().size(), on.in(20s)))) == errc::ok);
  CHECK(bytes() == with.size);
  CHECK(code(on.run(on.filesystems().grow(device, "ext4", target, {}, on.in(20s)))) == errc::ok);
  CHECK(bytes() == on.image().size());
}

// --- mappings

struct Mapped {
  explicit Mapped(ContractKernel& on) : on(on), link(on), index(connect(on, link)) {
    host::LuksFormat how;
    how.mapping = kMapping;
    REQUIRE(code(on.run(on.luks().format(device::path(index), how, kPassphrase, {}, on.in(40s)))) == errc::ok);
    REQUIRE(open() == errc::ok);
  }
  errc open() { return code(on.run(on.luks().open(device::path(index), kMapping, kPassphrase, {}, {}, on.in(40s)))); }
  errc close() { return code(on.run(on.luks().close(kMapping, {}, on.in(20s)))); }
  ContractKernel& on;
  Served link;
  const std::uint32_t index;
  const std::string path = "/dev/mapper/" + kMapping, target = on.folder() + "/staged";
};

void mapping(ContractKernel& on) {
  Mapped volume(on);
  const auto holders = seen(on)->holders;
  REQUIRE(holders.size() == 1);
  CHECK(holders.front().mapping == kMapping);
  CHECK(holders.front().size == on.image().size() - (16 << 20));
  CHECK(holders.front().maker == device::Maker::crypt);
  CHECK(unused(on, volume.index) == errc::in_use);
  CHECK(volume.open() == errc::ok);
  CHECK(seen(on)->holders == holders);
  CHECK(volume.close() == errc::ok);
  CHECK(seen(on)->holders.empty());
  CHECK(unused(on, volume.index) == errc::ok);
  CHECK(volume.close() == errc::ok);
}

void mapping_in_use(ContractKernel& on) {
  Mapped volume(on);
  make_filesystem(on, volume.path);
  REQUIRE(mount(on, volume.path, volume.target) == errc::ok);
  const auto shown = mounted(on, volume.target);
  REQUIRE(shown);
  const auto holder = seen(on)->holders.front();
  CHECK(shown->dev_major == holder.dev_major);
  CHECK(shown->dev_minor == holder.dev_minor);
  CHECK(volume.close() == errc::in_use);
  CHECK(seen(on)->holders.size() == 1);
  CHECK(unmount(on, volume.target) == errc::ok);
  CHECK(volume.close() == errc::ok);
}

void mapping_of_disconnected(ContractKernel& on) {
  Mapped volume(on);
  on.disconnect(volume.index);
  REQUIRE(seen(on));
  CHECK(seen(on)->holders.size() == 1);
  CHECK(volume.close() == errc::ok);
  CHECK(goes(on));
}

struct Check {
  const char* sentence;
  void (*holds)(ContractKernel&);
};

constexpr Check kChecks[] = {
    {"a device shows its size and identifier, is found by that alone, and is read and written", &looks},
    {"a device gets the lowest number that is free and not to be avoided, and a repeated connect the same", &numbers},
    {"a dead link is told, and what comes then waits without being counted, and goes on with the next link",
     &dead_link},
    {"what a dead link left behind is counted, and sent again on the next link", &left_behind},
    {"a request on a dead link fails at the end of its patience, and the device still takes a link", &given_up},
    {"a device takes no second link while the first lives, and goes on with that", &second_link},
    {"a link for another identifier, or for a number that nobody has, is not taken", &wrong_device},
    {"a disconnect fails what waits; it may be repeated, and spares another's device", &disconnected},
    {"a disconnect ends a link that lives", &said_goodbye},
    {"a disconnected device stays while a program has it open, fails requests, takes no link, and tells who did it",
     &held_open},
    {"a path of a device outlives it, and keeps it neither in use nor configured", &bound},
    {"a number keeps its read-only flag for the next device, until it is tuned", &kept_flag},
    {"a number keeps its timer for the next device", &kept_timer},
    {"a device connected read-only takes no other flag, and leaves none to the next one", &connected_read_only},
    {"a device grows by a live link, not by a dead one, and keeps its size over the next link", &grows},
    {"a mount keeps its device in use, a bind alone as well", &in_use},
    {"a bind is read-only by its own flag, a filesystem for all its mounts", &read_only_flags},
    {"a read-only device takes only a read-only mount", &read_only_device},
    {"a probe tells whether a device has a filesystem, and one without is not mounted", &other_content},
    {"a mount with an open file is busy, and another one of its filesystem is not", &busy},
    {"a filesystem that was unmounted lazily is in no table, and keeps its device in use and configured", &lazily},
    {"the last unmount waits for the next link", &unserved_mount},
    {"the unmount of a read-only filesystem waits for no link", &unserved_reader},
    {"the unmount of a bind waits for no link, without a sync", &unserved_bind},
    {"a filesystem of a disconnected device can be unmounted, and the device goes with it", &disconnected_mount},
    {"without a link a probe waits for the next one, and whether the device is in use is told at once",
     &unserved_device},
    {"the first that opens a device waits for the next link if there is none, also to see whether it is in use",
     &first_open},
    {"a filesystem grows after its device, when it is told", &filesystem_grows},
    {"a mapping is shown as its device's holder, keeps it in use, and goes when it is closed", &mapping},
    {"a mapping whose filesystem is mounted is not closed", &mapping_in_use},
    {"a mapping of a disconnected device can be closed, and the device goes with it", &mapping_of_disconnected},
};

}  // namespace

void check_kernel_contract(const std::function<std::unique_ptr<ContractKernel>()>& make) {
  for (const auto& check : kChecks) DYNAMIC_SECTION(check.sentence) {
      const auto kernel = make();
      check.holds(*kernel);
    }
}

}  // namespace corbd::test
