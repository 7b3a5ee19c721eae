// A verifying writer: writes numbered, checksummed blocks at pseudo-random places and records every write the kernel
// acknowledged, so that afterwards each of them can be looked for.
//
// T threads write as fast as they are answered. N more write once every M ms and are idle otherwise: so after a fault
// some write is new to the kernel. Each thread owns the blocks of its own residue class, so a block may only hold its
// last acknowledged write, or a later one that was in flight. A write is acknowledged when this returns: direct,
// pwrite; fsync, fdatasync; mmap, msync. The journal (keep it off the volume) is an array of Entry.
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "block.hpp"
#include "options.hpp"
#include "threads.hpp"

namespace corbd::writer {
namespace {

struct Entry {
  std::uint64_t block;
  std::uint64_t seq;
  std::uint64_t ts_us;  // when it was acknowledged, or failed
  std::uint32_t latency_us;
  std::uint32_t error;  // an errno, 0 for an acknowledged write
};
static_assert(sizeof(Entry) == 32);

std::vector<Entry> read_journal(const std::string& path) {
  std::vector<Entry> all;
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"),
                                             [](FILE* f) { return f ? std::fclose(f) : 0; });
  if (!file) return all;
  Entry one;
  while (std::fread(&one, sizeof one, 1, file.get()) == 1) all.push_back(one);
  return all;
}

// --- run

std::atomic<std::uint64_t> next_seq{1}, acked{0}, failed{0};
thread_local sigjmp_buf bus_jump;
thread_local volatile sig_atomic_t bus_armed = 0;

void on_bus(int) {
  if (bus_armed) siglongjmp(bus_jump, 1);
  _exit(3);
}

class Target {
 public:
  explicit Target(const Options& o) : mode_(o.mode) {
    const int extra = mode_ == "direct" ? O_DIRECT : 0;
    fd_ = ::open(o.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | extra, 0644);
    if (fd_ < 0) die("open " + o.path);
    struct stat st{};
    if (::fstat(fd_, &st) != 0) die("stat " + o.path);
    if (S_ISREG(st.st_mode) && static_cast<std::uint64_t>(st.st_size) < o.size &&
        ::ftruncate(fd_, static_cast<off_t>(o.size)) != 0)
      die("ftruncate " + o.path);
    if (mode_ == "mmap") {
      map_ = static_cast<char*>(::mmap(nullptr, o.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
      if (map_ == MAP_FAILED) die("mmap " + o.path);
    }
  }

  int write(const Block& b) const {  // 0 or an errno
    const auto offset = static_cast<off_t>(b.block * block_size);
    if (mode_ == "mmap") return write_mapped(b);
    const ssize_t n = ::pwrite(fd_, &b, block_size, offset);
    if (n != static_cast<ssize_t>(block_size)) return n < 0 ? errno : EIO;
    return mode_ == "fsync" && ::fdatasync(fd_) != 0 ? errno : 0;
  }

 private:
  int write_mapped(const Block& b) const {
    char* place = map_ + b.block * block_size;
    if (sigsetjmp(bus_jump, 1) != 0) {
      bus_armed = 0;
      return EFAULT;
    }
    bus_armed = 1;
    std::memcpy(place, &b, block_size);
    bus_armed = 0;
    return ::msync(place, block_size, MS_SYNC) != 0 ? errno : 0;
  }

  std::string mode_;
  int fd_ = -1;
  char* map_ = nullptr;
};

void record(int journal, const Entry& entry) {
  if (::write(journal, &entry, sizeof entry) != static_cast<ssize_t>(sizeof entry)) die("write to the journal");
}

void work(const Target& target, int journal, unsigned index, unsigned classes, std::uint64_t blocks, unsigned pace_ms) {
  std::uint64_t state = index * 7919 + next_seq;
  auto buffer = std::make_unique<Block>();
  const std::uint64_t mine = (blocks - index + classes - 1) / classes;
  while (!stopping) {
    const std::uint64_t block = index + (mix(state) % mine) * classes;
    const std::uint64_t seq = next_seq++;
    fill(*buffer, block, seq);
    const std::uint64_t begin = now_us();
    const int error = target.write(*buffer);
    const std::uint64_t end = now_us();
    const auto latency = static_cast<std::uint32_t>(std::min<std::uint64_t>(end - begin, UINT32_MAX));
    record(journal, {block, seq, end, latency, static_cast<std::uint32_t>(error)});
    ++(error ? failed : acked);
    const unsigned pause = error ? std::max(pace_ms, 20u) : pace_ms;
    if (pause) std::this_thread::sleep_for(std::chrono::milliseconds(pause));
  }
}

}  // namespace

int run(const Options& o) {
  const unsigned classes = o.threads + o.paced;
  const std::uint64_t blocks = o.size / block_size;
  if (classes == 0 || blocks < classes) {
    std::fprintf(stderr, "corbd-writer: --size must be at least one block of %zu bytes for each of the %u threads\n",
                 block_size, classes);
    return 2;
  }
  for (const Entry& e : read_journal(o.journal())) next_seq = std::max<std::uint64_t>(next_seq, e.seq + 1);
  const int journal = ::open(o.journal().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (journal < 0) die("open " + o.journal());
  const Target target(o);
  struct sigaction action{};
  action.sa_handler = on_bus;
  ::sigaction(SIGBUS, &action, nullptr);
  const unsigned hung = run_threads(o, classes, [&](unsigned i) {
    if (i >= o.threads) std::this_thread::sleep_for(std::chrono::milliseconds(o.pace_ms * (i - o.threads) / o.paced));
    work(target, journal, i, classes, blocks, i < o.threads ? 0 : o.pace_ms);
  });
  std::printf("{\"acked\":%lu,\"errors\":%lu,\"hung\":%u}\n", acked.load(), failed.load(), hung);
  std::fflush(stdout);
  _exit(hung ? 4 : failed ? 1 : 0);
}

// --- verify

namespace {

std::string stalls(const std::vector<Entry>& sorted, const std::vector<std::uint64_t>& kills) {
  std::string out;
  for (std::size_t k = 0; k < kills.size(); ++k) {
    const std::uint64_t end = k + 1 < kills.size() ? kills[k + 1] : UINT64_MAX;
    // The signal takes a moment: the fault shows as the longest gap that ends after it and before the next.
    std::uint64_t last_before = 0, first = 0, first_new = 0, longest_write = 0, previous = 0;
    for (const Entry& e : sorted) {
      if (e.error) continue;
      if (e.ts_us > kills[k] && e.ts_us < end) {
        if (previous && e.ts_us - previous > first - last_before) last_before = previous, first = e.ts_us;
        longest_write = std::max<std::uint64_t>(longest_write, e.latency_us);
      }
      previous = e.ts_us;
    }
    for (const Entry& e : sorted)
      if (!e.error && first && e.ts_us >= first && e.ts_us - e.latency_us > kills[k]) {
        first_new = e.ts_us;
        break;
      }
    char line[256];
    std::snprintf(
        line, sizeof line,
        "%s{\"kill_us\":%lu,\"last_before_us\":%lu,\"first_us\":%lu,\"first_new_us\":%lu,\"longest_write_us\":%lu}",
        k ? "," : "", kills[k], last_before, first, first_new, longest_write);
    out += line;
  }
  return out;
}

using Last = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // block, its last acknowledged write

/// Reads every share-th block from `first` on; how many do not hold what they must.
std::uint64_t missing(const std::string& path, const Last& last, std::size_t first, std::size_t share) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (fd < 0) die("open " + path);
  auto buffer = std::make_unique<Block>();
  std::uint64_t lost = 0;
  for (std::size_t i = first; i < last.size(); i += share) {
    const auto [block, seq] = last[i];
    const ssize_t n = ::pread(fd, buffer.get(), block_size, static_cast<off_t>(block * block_size));
    const bool whole = n == static_cast<ssize_t>(block_size) && is_whole(*buffer, block);
    if (whole && buffer->seq >= seq) continue;
    if (lost++ < 3)
      std::fprintf(stderr, "corbd-writer: block %lu: acknowledged write %lu, found %s %lu\n", block, seq,
                   n < 0   ? std::strerror(errno)
                   : whole ? "older"
                           : "damaged",
                   whole ? buffer->seq : 0);
  }
  ::close(fd);
  return lost;
}

std::uint64_t missing(const std::string& path, const Last& last) {
  constexpr std::size_t readers = 16;
  std::atomic<std::uint64_t> lost{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < readers; ++i) threads.emplace_back([&, i] { lost += missing(path, last, i, readers); });
  for (std::thread& thread : threads) thread.join();
  return lost;
}

}  // namespace

int verify(const Options& o) {
  std::vector<Entry> entries = read_journal(o.journal());
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.ts_us < b.ts_us; });
  std::map<std::uint64_t, std::uint64_t> seqs;
  std::uint64_t good = 0, errors = 0, longest_stall = 0, longest_write = 0, previous = 0;
  for (const Entry& e : entries) {
    if (e.error) {
      ++errors;
      continue;
    }
    ++good;
    std::uint64_t& seq = seqs[e.block];
    seq = std::max(seq, e.seq);
    if (previous) longest_stall = std::max(longest_stall, e.ts_us - previous);
    previous = e.ts_us;
    longest_write = std::max<std::uint64_t>(longest_write, e.latency_us);
  }
  const std::uint64_t lost = o.command == "stalls" ? 0 : missing(o.path, Last(seqs.begin(), seqs.end()));
  std::printf(
      "{\"acked\":%lu,\"blocks\":%zu,\"lost\":%lu,\"errors\":%lu,\"longest_stall_us\":%lu,\"longest_write_us\":%lu,"
      "\"kills\":[%s]}\n",
      good, seqs.size(), lost, errors, longest_stall, longest_write, stalls(entries, o.kills).c_str());
  return lost || errors ? 1 : 0;
}

}  // namespace corbd::writer
