// Reads and writes the same few blocks from many threads, notes when each operation began and ended, and looks
// afterwards whether they can have happened one after another. 0 lost writes do not prove that: a read may have seen an
// old value, or a late write come after a newer one.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "block.hpp"
#include "options.hpp"
#include "order.hpp"
#include "threads.hpp"

namespace corbd::writer {
namespace {

/// An entry of the journal: one when an operation begins, one when it ends or fails.
struct Note {
  enum class Phase : std::uint8_t { began, ended, failed };
  std::uint64_t id;
  std::uint64_t value;
  std::int64_t at;  ///< ns since 1970, because two nodes may take part
  std::uint32_t block;
  bool writes;
  Phase phase;
  std::uint16_t unused;
};
static_assert(sizeof(Note) == 32);

std::int64_t now_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

std::vector<Note> read_notes(const std::string& path) {
  std::vector<Note> all;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                   [](FILE* f) { return f ? std::fclose(f) : 0; });
  if (!file) return all;
  Note one;
  while (std::fread(&one, sizeof one, 1, file.get()) == 1) all.push_back(one);
  return all;
}

int open_blocks(const Options& o) {
  const int fd = ::open(o.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0644);
  if (fd < 0) die("open " + o.path);
  struct stat st{};
  if (::fstat(fd, &st) != 0) die("stat " + o.path);
  // Reads of a file's holes do not reach the device, so a new file is filled first.
  if (!S_ISREG(st.st_mode) || static_cast<std::uint64_t>(st.st_size) >= o.size) return fd;
  auto zeroes = std::make_unique<Block>();
  std::memset(zeroes.get(), 0, sizeof *zeroes);
  for (std::uint64_t at = 0; at < o.size; at += block_size)
    if (::pwrite(fd, zeroes.get(), block_size, static_cast<off_t>(at)) != static_cast<ssize_t>(block_size))
      die("write " + o.path);
  if (::fsync(fd) != 0) die("fsync " + o.path);
  return fd;
}

/// The value that a block holds.
std::uint64_t value_of(const Block& read, std::uint64_t block) {
  if (is_whole(read, block)) return read.seq;
  const auto* words = reinterpret_cast<const std::uint64_t*>(&read);
  const bool zero = std::all_of(words, words + block_size / 8, [](std::uint64_t word) { return word == 0; });
  return zero ? Operation::kInitial : Operation::kDamaged;
}

class Client {
 public:
  Client(int blocks, int journal, std::uint64_t count, std::atomic<std::uint64_t>& next, std::uint64_t seed)
      : blocks_(blocks), journal_(journal), count_(count), next_(next), state_(seed) {}

  /// Returns an errno; 0: done.
  int operate() {
    Note note{next_++, 0, 0, static_cast<std::uint32_t>(mix(state_) % count_), mix(state_) % 2 == 0, Note::Phase::began,
              0};
    if (note.writes) {
      note.value = note.id;
      fill(*buffer_, note.block, note.value);
    }
    write_down(note);
    const auto at = static_cast<off_t>(note.block * block_size);
    const ssize_t n = note.writes ? ::pwrite(blocks_, buffer_.get(), block_size, at)
                                  : ::pread(blocks_, buffer_.get(), block_size, at);
    const int error = n == static_cast<ssize_t>(block_size) ? 0 : n < 0 ? errno : EIO;
    note.phase = error == 0 ? Note::Phase::ended : Note::Phase::failed;
    if (error == 0 && !note.writes) note.value = value_of(*buffer_, note.block);
    write_down(note);
    return error;
  }

 private:
  void write_down(Note& note) {
    note.at = now_ns();
    if (::write(journal_, &note, sizeof note) != static_cast<ssize_t>(sizeof note)) die("write to the journal");
  }

  int blocks_, journal_;
  std::uint64_t count_;
  std::atomic<std::uint64_t>& next_;
  std::uint64_t state_;
  std::unique_ptr<Block> buffer_ = std::make_unique<Block>();
};

}  // namespace

int run_ordered(const Options& o) {
  const std::uint64_t count = o.size / block_size;
  if (count == 0 || o.threads == 0) {
    std::fprintf(stderr, "corbd-writer: order needs a --size of at least %zu bytes, and a thread\n", block_size);
    return 2;
  }
  std::atomic<std::uint64_t> next{o.first};
  for (const Note& one : read_notes(o.journal())) next = std::max<std::uint64_t>(next, one.id + 1);
  const int journal = ::open(o.journal().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (journal < 0) die("open " + o.journal());
  const int blocks = open_blocks(o);
  std::atomic<std::uint64_t> done{0}, failed{0};
  const std::uint64_t seed = next;
  const unsigned hung = run_threads(o, o.threads, [&](unsigned i) {
    Client client(blocks, journal, count, next, seed * 7919 + i);
    while (!stopping) {
      const int error = client.operate();
      ++(error ? failed : done);
      if (error || o.pace_ms) std::this_thread::sleep_for(std::chrono::milliseconds(error ? 20 : o.pace_ms));
    }
  });
  std::printf("{\"operations\":%lu,\"errors\":%lu,\"hung\":%u}\n", done.load(), failed.load(), hung);
  std::fflush(stdout);
  _exit(hung ? 4 : failed ? 1 : 0);
}

int check_ordered(const Options& o) {
  std::vector<Operation> history;
  std::uint64_t reads = 0, writes = 0, unknown = 0;
  for (const auto& journal : o.journals) {
    std::map<std::uint64_t, std::size_t> by_id;
    for (const Note& note : read_notes(journal)) {
      const auto [place, is_new] = by_id.try_emplace(note.id, history.size());
      if (is_new) history.push_back({note.block, note.writes, note.value, note.at});
      if (note.phase != Note::Phase::ended) continue;
      history[place->second].value = note.value;
      history[place->second].ended = note.at;
    }
  }
  for (const auto& one : history) ++(one.ended == Operation::kUnknown ? unknown : one.writes ? writes : reads);
  const auto found = violations(history);
  for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), 5); ++i)
    std::fprintf(stderr, "corbd-writer: %s\n", found[i].c_str());
  std::printf("{\"reads\":%lu,\"writes\":%lu,\"unknown\":%lu,\"violations\":%zu}\n", reads, writes, unknown,
              found.size());
  return found.empty() ? 0 : 1;
}

}  // namespace corbd::writer
