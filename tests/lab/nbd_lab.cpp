// Tests make_devices() against the kernel's own nbd driver: the story `driver`. Needs root and a kernel to play with.
#include <fcntl.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "corbd/core/fd.hpp"
#include "corbd/nbd/devices.hpp"
#include "support/catch.hpp"
#include "support/memory_image.hpp"

namespace corbd::test {
namespace {

constexpr std::chrono::seconds kPatience{20};
const std::string kBackend = "lab-driver";

struct Node {
  explicit Node(bool write_zeroes = false)
      : clock(make_real_clock(control.get_executor())),
        devices(nbd::make_devices(control.get_executor(), *clock, {.write_zeroes = write_zeroes})) {}
  ~Node() {
    if (index) {
      if (link) link->shut();
      run(devices->disconnect(*index, kBackend, patience()));
    }
    link.reset();
  }
  Until patience() { return {clock->now() + kPatience, nullptr}; }
  template <class T>
  T run(task<T> work) {
    std::optional<T> out;
    asio::co_spawn(control, std::move(work), [&](std::exception_ptr, T value) { out.emplace(std::move(value)); });
    const auto end = std::chrono::steady_clock::now() + 2 * kPatience;
    while (!out && std::chrono::steady_clock::now() < end) {
      control.restart();
      control.run_for(std::chrono::milliseconds(1));
    }
    REQUIRE(out);
    return std::move(*out);
  }
  void serve() {
    auto made = devices->serve(image, false, {});
    REQUIRE(made);
    link = std::move(*made);
  }
  void connect(std::uint32_t block_size = 512, std::vector<std::uint32_t> avoid = {}) {
    serve();
    device::ConnectArgs args;
    args.backend = kBackend;
    args.size = image.size();
    args.block_size = block_size;
    args.avoid = [avoid = std::move(avoid)] { return avoid; };
    const auto got = run(devices->connect(*link, args, patience()));
    REQUIRE(got);
    index = *got;
  }
  result<> reconnect(const std::string& backend = kBackend) {
    return run(devices->reconnect(*link, {*index, backend}, patience()));
  }
  std::optional<device::Seen> seen() {
    const auto all = devices->inventory();
    REQUIRE(all);
    for (const auto& one : *all)
      if (one.backend == kBackend) return one;
    return std::nullopt;
  }
  /// The exit code of a shell command in which $D is the device.
  int shell(const std::string& command) {
    const int status = std::system(("D=" + device::path(*index) + "; { " + command + "; } 2>/dev/null").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  MemoryImage image{1u << 20, MemoryImage::Ends::elsewhere};
  asio::io_context control;
  std::unique_ptr<Clock> clock;
  std::unique_ptr<device::Devices> devices;
  std::unique_ptr<device::Link> link;
  std::optional<std::uint32_t> index;
};

}  // namespace

TEST_CASE("the kernel takes a device, uses it and lets it go") {
  Node node;
  REQUIRE(node.devices->ready());
  node.connect();
  const auto seen = node.seen();
  REQUIRE(seen);
  CHECK(seen->index == node.index);
  CHECK(seen->size == node.image.size());
  CHECK(seen->dev_major == 43);
  CHECK(node.shell("head -c 1048576 /dev/urandom >/tmp/data && dd if=/tmp/data of=$D bs=64k oflag=direct && "
                   "dd if=$D bs=32k iflag=direct | cmp - /tmp/data && blkdiscard -o 4096 -l 4096 $D && sync $D") == 0);
  const auto content = node.image.content();
  CHECK(std::all_of(content.begin() + 4096, content.begin() + 8192, [](std::byte one) { return one == std::byte{0}; }));
  // The caller that left early asks again and learns the same.
  device::ConnectArgs args;
  args.backend = kBackend;
  args.size = node.image.size();
  CHECK(node.run(node.devices->connect(*node.link, args, node.patience())).value() == node.index);
  CHECK(node.run(node.devices->disconnect(*node.index, kBackend, node.patience())));
  CHECK_FALSE(node.seen());
  CHECK(node.run(node.devices->disconnect(*node.index, kBackend, node.patience())));
}

TEST_CASE("a dead link is replaced, and I/O that waited for it goes on", "[failure:45][rule:4]") {
  Node node;
  node.connect(4096);
  REQUIRE(node.shell("echo 1000 >/sys/block/$(basename $D)/queue/io_timeout") == 0);
  CHECK(node.seen()->io_timeout_ms == 1000);
  node.image.set_ends(MemoryImage::Ends::when_told);
  int written = -1;
  std::thread writer([&] {
    written = node.shell("head -c 65536 /dev/zero | tr '\\0' x | dd of=$D bs=64k iflag=fullblock oflag=direct");
  });
  for (int i = 0; node.image.waiting() == 0 && i < 20000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(node.image.waiting() > 0);
  node.link->shut();
  node.image.release();
  REQUIRE(node.run(node.link->idle(node.patience())) == Waited::ready);
  node.image.set_ends(MemoryImage::Ends::elsewhere);
  node.serve();
  auto again = node.reconnect("another volume");
  REQUIRE_FALSE(again);
  CHECK(again.error().code == errc::not_found);
  // On one processor the kernel may learn only after us that the old link is dead; then it is as if that lived.
  result<> taken = node.reconnect();
  for (int i = 0; !taken && taken.error().code == errc::unavailable && i < 400; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    // The kernel dropped its end of that one.
    node.link->shut();
    REQUIRE(node.run(node.link->idle(node.patience())) == Waited::ready);
    node.serve();
    taken = node.reconnect();
  }
  INFO((taken ? "" : taken.error().text));
  CHECK(taken);
  // A write that nobody serves would never end.
  if (!taken) node.run(node.devices->disconnect(*node.index, kBackend, node.patience()));
  writer.join();
  CHECK(written == 0);
  CHECK(node.image.content()[65535] == std::byte{'x'});
}

TEST_CASE("the kernel refuses a new link while the old one lives, and the agent notices", "[failure:4][rule:4]") {
  Node node;
  node.connect();
  const auto old = std::move(node.link);
  node.serve();
  const auto taken = node.reconnect();
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == errc::unavailable);
  CHECK_THAT(taken.error().text, ContainsSubstring("old link is still alive"));
  CHECK(node.shell("dd if=$D of=/dev/null bs=4k count=1 iflag=direct") == 0);
  old->shut();
}

TEST_CASE("a device whose image needs no flush announces no write cache, and the next device with its number can",
          "[rule:1a]") {
  std::vector<std::uint32_t> numbers, lower;
  for (const bool needs : {false, true}) {
    // The number is free a moment after the disconnect.
    const auto is_taken = [&] {
      return std::filesystem::exists("/sys/block/nbd" + std::to_string(numbers.front()) + "/pid");
    };
    for (int i = 0; !numbers.empty() && is_taken() && i < 5000; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Node node;
    node.image.set_needs_flush(needs);
    node.serve();
    device::ConnectArgs args;
    args.backend = kBackend;
    args.size = node.image.size();
    args.send_flush = needs;
    args.avoid = [lower] { return lower; };
    const auto got = node.run(node.devices->connect(*node.link, args, node.patience()));
    REQUIRE(got);
    node.index = *got;
    const std::string cache = needs ? "write back" : "write through";
    CHECK(node.shell("grep -qx '" + cache + "' /sys/block/$(basename $D)/queue/write_cache") == 0);
    CHECK(node.shell("dd if=/dev/zero of=$D bs=4k count=1 oflag=direct conv=notrunc,fsync") == 0);
    // The io thread may count a request after another thread has answered it.
    const auto counted = [&] { return node.link->figures().of(device::RequestKind::flush).requests; };
    for (int i = 0; needs && counted() == 0 && i < 5000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(counted() == (needs ? 1 : 0));
    numbers.push_back(*got);
    for (std::uint32_t number = 0; number < *got; ++number) lower.push_back(number);
  }
  CHECK(numbers.front() == numbers.back());
}

TEST_CASE("the kernel's refusal of a block size is told") {
  Node node;
  node.serve();
  device::ConnectArgs args;
  args.backend = kBackend;
  args.size = node.image.size();
  args.block_size = 513;
  const auto got = node.run(node.devices->connect(*node.link, args, node.patience()));
  REQUIRE_FALSE(got);
  CHECK(got.error().code == errc::failed_precondition);
}

TEST_CASE("a disconnect ends the link by the kernel's goodbye") {
  Node node;
  node.connect();
  CHECK(node.run(node.devices->disconnect(*node.index, kBackend, node.patience())));
  const auto serving = [&] { return node.link->state() == device::Link::State::serving; };
  for (int i = 0; serving() && i < 20000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(node.link->state() == device::Link::State::closed);
}

TEST_CASE("a disconnected device stays as long as somebody has it open, and takes no link meanwhile") {
  Node node;
  node.connect();
  Fd held(::open(device::path(*node.index).c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(held);
  CHECK(node.run(node.devices->disconnect(*node.index, kBackend, node.patience())));
  REQUIRE(node.seen());
  CHECK(node.seen()->disconnected);
  node.serve();
  const auto taken = node.reconnect();
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == errc::not_found);
  CHECK(node.run(node.devices->disconnect(*node.index, kBackend, node.patience())));
  held.reset();
  for (int i = 0; node.seen() && i < 20000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK_FALSE(node.seen());
}

TEST_CASE("a new device gets no number to avoid, even after a device has gone") {
  Node first;
  first.connect();
  const std::uint32_t avoided = *first.index;
  Node second;
  second.connect(512, {avoided});
  CHECK(*second.index != avoided);
  CHECK(first.run(first.devices->disconnect(avoided, kBackend, first.patience())));
  CHECK(second.run(second.devices->disconnect(*second.index, kBackend, second.patience())));
  second.link.reset();
  second.connect(512, {avoided});
  CHECK(*second.index != avoided);
}

TEST_CASE(
    "a disconnected device stays unconfigured, and the next one reuses its number and offers only what it was asked "
    "to",
    "[rule:21]") {
  Node node;
  node.connect();
  const std::uint32_t index = *node.index;
  const std::string block = "/sys/block/" + device::name(device::Kind::nbd, index);
  CHECK(node.shell("test \"$(cat " + block + "/queue/write_zeroes_max_bytes)\" = 0") == 0);
  CHECK(node.run(node.devices->disconnect(index, kBackend, node.patience())));
  for (int i = 0; node.seen() && i < 20000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(node.shell("test -e " + block + " && ! test -e " + block + "/pid && test \"$(cat " + block + "/size)\" = 0") ==
        0);
  node.link.reset();
  node.connect();
  CHECK(*node.index == index);
}

TEST_CASE("no number below that of a new device is without a device", "[rule:21]") {
  Node first, second;
  first.connect();
  second.connect();
  CHECK(first.run(first.devices->disconnect(*first.index, kBackend, first.patience())));
  for (std::uint32_t index = 0; index < *second.index; ++index)
    CHECK(second.shell("test -e /sys/block/" + device::name(device::Kind::nbd, index)) == 0);
}

TEST_CASE("a device that offers WRITE_ZEROES gets them from the kernel, and its number takes them for ever",
          "[rule:21]") {
  const char* where = std::getenv("CORBD_LAB_WHERE");
  // A kernel that is not ours must keep its modules.
  if (where != nullptr && std::string_view(where) == "native") return;
  const std::string zero = "blkdiscard -z -o 512 -l 262144 $D";
  const MemoryImage::Call call{MemoryImage::Io::write_zeroes, 512, 262144};
  const auto takes = [](Node& node) {
    return node.shell("test \"$(cat /sys/block/$(basename $D)/queue/write_zeroes_max_bytes)\" != 0") == 0;
  };
  std::uint32_t index = 0;
  {
    Node node(true);
    node.connect();
    index = *node.index;
    if (node.shell("test \"$( (echo 6.12; uname -r) | sort -V | head -n 1)\" = 6.12") != 0) return;
    REQUIRE(takes(node));
    CHECK(node.shell(zero) == 0);
    CHECK(std::ranges::count(node.image.calls(), call) == 1);
  }
  // The number is free a moment after the disconnect.
  const std::string pid = "/sys/block/nbd" + std::to_string(index) + "/pid";
  for (int i = 0; std::filesystem::exists(pid) && i < 5000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  {
    Node node;
    node.connect();
    CHECK(*node.index == index);
    CHECK(takes(node));
    CHECK(node.shell(zero) == 0);
    CHECK(std::ranges::count(node.image.calls(), call) == 1);
  }
  // The number is in use until its last opener has gone.
  bool unloaded = false;
  for (int i = 0; !unloaded && i < 200; ++i) {
    unloaded = std::system("rmmod nbd 2>/dev/null") == 0;
    if (!unloaded) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  REQUIRE(unloaded);
  REQUIRE(std::system("modprobe nbd nbds_max=0") == 0);
  Node node;
  node.connect();
  CHECK_FALSE(takes(node));
}

}  // namespace corbd::test
