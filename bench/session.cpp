// What a request costs in our own code: a session on a memory image beside `nbdkit memory`, each a process of its own
// on one end of a socket pair, driven by the same libnbd client in the same run, turn by turn. Read the ratios: the
// figures are the machine's.
#include "session.hpp"

#include <libnbd.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "link.hpp"
#include "support/memory_image.hpp"
#include "support/newstyle.hpp"

namespace corbd::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::uint64_t kImageBytes = 64u << 20;
constexpr int kRounds = 3;

// --- the server

/// Has nothing. What keeping costs on the way of a request is the memory.
struct NoKeep final : device::FdStore {
  result<> hold(const Link&, int, int) override { return {}; }
  result<> hold_memory(std::uint64_t, int) override { return {}; }
  result<> drop(std::uint64_t) override { return {}; }
};

}  // namespace

int serve(bool kept) {
  test::MemoryImage image(kImageBytes);
  image.remember_calls(false);
  if (!test::newstyle_handshake(STDIN_FILENO, kImageBytes)) return 1;
  nbd::enlarge_send_buffer(STDIN_FILENO);  // as the agent's own sockets have it
  asio::io_context control;
  const auto work = asio::make_work_guard(control);
  const auto clock = make_real_clock(control.get_executor());
  NoKeep keep;
  nbd::IoLoop loop(256u << 20, 32u << 20, 1u << 20, nbd::kKeptBuffers, kept ? &keep : nullptr);
  nbd::Counters counters;
  const auto stop = [&] { control.stop(); };
  const auto link =
      nbd::serve_socket(control.get_executor(), *clock, loop, image, Fd(::dup(STDIN_FILENO)), counters, false, stop);
  control.run();
  link->shut();
  while (link->state() == device::Link::State::serving || link->in_flight() > 0) std::this_thread::yield();
  return 0;
}

namespace {

// --- the client

class Client {
 public:
  Client(const std::vector<std::string>& command, std::size_t request_bytes, bool writes, std::size_t depth)
      : handle_(::nbd_create()), bytes_(request_bytes), writes_(writes), slots_(depth) {
    std::vector<char*> argv;
    for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    check(::nbd_connect_command(handle_, argv.data()));
    for (auto& slot : slots_) {
      slot.client = this;
      slot.buffer.assign(bytes_, 'x');
    }
    // Both have all their memory: what was never written nbdkit does not read, it answers with zeroes.
    const std::vector<char> block(1 << 20, 'x');
    for (std::uint64_t at = 0; at < kImageBytes; at += block.size())
      check(::nbd_pwrite(handle_, block.data(), block.size(), at, 0));
  }
  ~Client() { ::nbd_close(handle_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void run_for(Seconds time) {
    const auto end = SteadyClock::now() + time;
    run([&] { return SteadyClock::now() < end; });
  }
  void run_count(std::uint64_t count) {
    const auto end = answered_ + count;
    run([&] { return answered_ + waiting_ < end; });
  }
  std::uint64_t answered() const { return answered_; }

 private:
  struct Slot {
    Client* client = nullptr;
    std::vector<char> buffer;
  };

  static void check(std::int64_t outcome) {
    if (outcome < 0) throw std::runtime_error(::nbd_get_error());
  }
  static int ended(void* data, int* error) {
    auto* slot = static_cast<Slot*>(data);
    if (*error != 0) std::abort();
    slot->client->idle_.push_back(slot);
    return 1;
  }
  void submit(Slot& slot) {
    const nbd_completion_callback told{&ended, &slot, nullptr};
    check(writes_ ? ::nbd_aio_pwrite(handle_, slot.buffer.data(), bytes_, next_, told, 0)
                  : ::nbd_aio_pread(handle_, slot.buffer.data(), bytes_, next_, told, 0));
    next_ = (next_ + bytes_) % kImageBytes;
    ++waiting_;
  }
  template <class More>
  void run(More more) {
    idle_.clear();
    for (auto& slot : slots_) idle_.push_back(&slot);
    std::vector<Slot*> free;
    do {
      free.clear();
      free.swap(idle_);  // from a callback nothing may be submitted
      for (auto* slot : free)
        if (more()) submit(*slot);
      if (waiting_ > 0) check(::nbd_poll(handle_, -1));
      waiting_ -= idle_.size();
      answered_ += idle_.size();
    } while (waiting_ > 0 || more());
  }

  nbd_handle* handle_;
  const std::size_t bytes_;
  const bool writes_;
  std::vector<Slot> slots_;
  std::vector<Slot*> idle_;
  std::uint64_t next_ = 0, waiting_ = 0, answered_ = 0;
};

// --- the comparison

struct Figure {
  double per_second = 0;
  double server_cpu_us = 0;  ///< per request, user and system
};

double children_cpu_us() {
  rusage used{};
  ::getrusage(RUSAGE_CHILDREN, &used);
  const auto us = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return us(used.ru_utime) + us(used.ru_stime);
}

Figure measure(const std::vector<std::string>& command, std::size_t bytes, bool writes, std::size_t depth,
               Seconds time) {
  const double cpu_before = children_cpu_us();
  Figure figure;
  std::uint64_t all = 0;
  {
    Client client(command, bytes, writes, depth);
    client.run_for(time / 5);
    const auto warm = client.answered();
    const auto begin = SteadyClock::now();
    client.run_for(time);
    figure.per_second = static_cast<double>(client.answered() - warm) / Seconds(SteadyClock::now() - begin).count();
    all = client.answered();
  }
  figure.server_cpu_us = (children_cpu_us() - cpu_before) / static_cast<double>(all);
  return figure;
}

Figure median(std::vector<Figure> of) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end(),
                   [](const auto& a, const auto& b) { return a.per_second < b.per_second; });
  return *middle;
}

}  // namespace

int session(Seconds time, const std::string& json_file, const std::vector<std::string>& beside, bool kept) {
  std::vector<std::string> ours{"/proc/self/exe", "serve"};
  if (kept) ours.emplace_back("--kept");
  std::vector<std::string> theirs{"nbdkit", "-s", "--exit-with-parent", "memory", std::to_string(kImageBytes)};
  if (!beside.empty()) theirs = beside;
  std::string json;
  std::printf("%-6s %8s %6s %14s %14s %7s %18s\n", "", "bytes", "depth", "corbd/s",
              beside.empty() ? "nbdkit/s" : "beside/s", "ratio", "server CPU ratio");
  for (const bool writes : {false, true})
    for (const std::size_t bytes : {4u << 10, 256u << 10})
      for (const std::size_t depth : {1u, 16u, 64u}) {
        std::vector<Figure> our_rounds, their_rounds;
        for (int round = 0; round < kRounds; ++round) {
          our_rounds.push_back(measure(ours, bytes, writes, depth, time));
          their_rounds.push_back(measure(theirs, bytes, writes, depth, time));
        }
        const Figure our = median(our_rounds), their = median(their_rounds);
        const char* kind = writes ? "write" : "read";
        std::printf("%-6s %8zu %6zu %14.0f %14.0f %7.2f %18.2f\n", kind, bytes, depth, our.per_second, their.per_second,
                    our.per_second / their.per_second, our.server_cpu_us / their.server_cpu_us);
        std::fflush(stdout);
        char line[400];
        std::snprintf(line, sizeof line,
                      "%s{\"bench\":\"session\",\"kind\":\"%s\",\"bytes\":%zu,\"depth\":%zu,\"corbd\":%.0f,\"nbdkit\":%"
                      ".0f,\"corbd_cpu_us\":%.3f,"
                      "\"nbdkit_cpu_us\":%.3f}",
                      json.empty() ? "" : ",\n", kind, bytes, depth, our.per_second, their.per_second,
                      our.server_cpu_us, their.server_cpu_us);
        json += line;
      }
  if (json_file.empty()) return 0;
  std::FILE* out = std::fopen(json_file.c_str(), "w");
  if (out == nullptr) throw std::runtime_error("cannot write " + json_file);
  std::fprintf(out, "[%s]\n", json.c_str());
  return std::fclose(out);
}

int drive(std::uint64_t count, const std::vector<std::string>& command) {
  for (const bool writes : {false, true}) Client(command, 4096, writes, 16).run_count(count);
  return 0;
}

}  // namespace corbd::bench
