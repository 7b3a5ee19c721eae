// A client of several servers, one after the other, that checks every byte of every answer and knows what the image
// must have.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdlib>
#include <map>
#include <random>

#include "arena.hpp"
#include "ground.hpp"

namespace corbd::test {

using SteadyClock = std::chrono::steady_clock;

inline constexpr std::size_t kRegions = 48, kRegion = 256 << 10;
inline constexpr std::size_t kShort = kRegions * kRegion;
/// A part of an image that is mostly empty: zeroes for it are cut into two or three pieces.
inline constexpr std::size_t kLong = 700ull << 20, kPiece = 256ull << 20;

/// What clients ask for, and of what kind of server.
struct Play {
  std::size_t links = 1;
  std::size_t depth = kRegions;
  std::size_t long_parts = 0;
  std::uint32_t longest = kRegion;  ///< of reads and writes
  /// Of one server after the other. A later one may have less than what an earlier one had in flight.
  std::vector<std::uint64_t> budgets{16u << 20};
  std::uint32_t reserved = 1u << 20;
  int send_buffer = 96 << 10;  ///< so that replies leave in parts
  bool bursts = false;         ///< now and then three more, so that a lone request is not always in the first slot
  bool reads_late = false;     ///< large replies, so that a part of one is out for a while
  int kills = 300;
  std::size_t image() const { return kShort + long_parts * kLong; }
  nbd::Limits limits() const { return {image(), false, 1u << 20}; }
};

/// The bytes of an image, which outlive every server. What is empty takes no memory.
class Disk {
 public:
  explicit Disk(std::size_t size) : size_(size) {
    file_ = nbd::make_memory_file("image", size).value();
    void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.get(), 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    at_ = static_cast<std::byte*>(at);
  }
  ~Disk() { ::munmap(at_, size_); }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  std::byte* at(std::uint64_t offset) const { return at_ + offset; }
  std::size_t size() const { return size_; }
  void zero(std::uint64_t offset, std::uint64_t length) const {
    if (length < kRegion)
      std::memset(at(offset), 0, length);
    else if (::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                         static_cast<off_t>(length)) != 0)
      std::abort();
  }
  Bytes read(std::uint64_t offset, std::size_t length) const {
    Bytes out(length);
    if (::pread(file_.get(), out.data(), length, static_cast<off_t>(offset)) != static_cast<ssize_t>(length))
      throw std::bad_alloc();
    return out;
  }
  bool operator==(const Disk& other) const {
    bool same = size_ == other.size_;
    for (std::size_t at = 0; same && at < size_; at += kRegion)
      same = read(at, std::min(kRegion, size_ - at)) == other.read(at, std::min(kRegion, size_ - at));
    return same;
  }

 private:
  std::size_t size_;
  Fd file_;
  std::byte* at_ = nullptr;
};

/// The client, as the kernel is one: it sends a request once, and checks every byte of every answer.
class StrictClient {
 public:
  StrictClient(const Play& play, int socket, unsigned seed)
      : play_(play), socket_(socket), random_(seed), model_(play.image()), busy_(kRegions + play.long_parts) {}

  void more(bool new_requests) {
    const std::size_t depth = play_.depth + (play_.bursts && below(8) == 0 ? 3 : 0);
    while (new_requests && waiting_.size() < depth && out_.size() - out_at_ < (64u << 10)) ask();
    push();
    pull();
  }
  bool quiet() const { return waiting_.empty() && out_at_ == out_.size() && wrong_.empty(); }
  std::size_t waiting() const { return waiting_.size(); }
  const std::string& wrong() const { return wrong_; }
  std::uint64_t answered() const { return answered_; }
  const Disk& model() const { return model_; }

 private:
  struct Asked {
    Command command;
    std::size_t region;
    std::uint64_t offset;
    std::uint32_t length, error;
  };

  std::uint32_t below(std::uint32_t most) { return static_cast<std::uint32_t>(random_() % most); }

  /// Where and how long, within the region.
  void choose(Asked& asked) {
    if (asked.region < kRegions) {
      asked.length = below(4) == 0 ? 1 + below(play_.longest) : 512 * (1 + below(16));
      asked.offset = asked.region * kRegion + below(static_cast<std::uint32_t>(kRegion - asked.length + 1));
      return;
    }
    asked.offset = kShort + (asked.region - kRegions) * kLong;
    const bool zeroes = asked.command == Command::write_zeroes || asked.command == Command::trim;
    if (zeroes) {
      asked.offset += below(kRegion);
      asked.length = static_cast<std::uint32_t>(kPiece + 1 + below(kLong - kRegion - kPiece));
      return;
    }
    // Near where pieces end.
    asked.length = 1 + below(play_.longest);
    const std::size_t end = below(3) * kPiece + kRegion;
    asked.offset += end - below(kRegion);
  }

  void ask() {
    // Mostly in the last ones, which are the long ones if there are any.
    const auto last = static_cast<std::uint32_t>(play_.long_parts > 0 ? play_.long_parts : kRegions / 4);
    std::size_t region =
        below(3) == 0 ? below(static_cast<std::uint32_t>(busy_.size())) : busy_.size() - 1 - below(last);
    while (busy_[region]) region = (region + 1) % busy_.size();
    static constexpr std::array kCommands{Command::read,         Command::read,  Command::read,
                                          Command::write,        Command::write, Command::write,
                                          Command::write_zeroes, Command::trim,  Command::flush};
    Asked asked{kCommands.at(below(kCommands.size())), region, 0, 0, 0};
    if (asked.command != Command::flush) choose(asked);
    std::uint16_t flags = 0;
    if (asked.command != Command::flush && asked.command != Command::read && below(4) == 0) flags = nbd::flag_fua;
    // Now and then one that is refused; a payload of it is skipped.
    const bool refused = asked.command != Command::flush && below(20) == 0;
    if (refused) asked.offset = play_.image(), asked.error = nbd::wire_einval;
    const std::uint64_t cookie = ++cookies_;
    out_ = out_ + request(asked.command, cookie, asked.offset, asked.length, flags);
    if (asked.command == Command::write) {
      const Bytes data = pattern(asked.length, below(1000));
      out_ = out_ + data;
      if (!refused) std::copy(data.begin(), data.end(), model_.at(asked.offset));
    } else if (!refused && (asked.command == Command::trim || asked.command == Command::write_zeroes)) {
      model_.zero(asked.offset, asked.length);
    }
    busy_[region] = true;
    waiting_.emplace(cookie, asked);
    if (play_.reads_late && asked.length > (16u << 10))
      reads_at_ = SteadyClock::now() + std::chrono::microseconds(below(1000));
  }

  /// In pieces of any length, so that a server dies with a part of a header or of a payload.
  void push() {
    while (out_at_ < out_.size()) {
      const std::size_t piece = std::min<std::size_t>(out_.size() - out_at_, 1 + below(below(3) == 0 ? 40 : 40000));
      const ssize_t sent = ::send(socket_, out_.data() + out_at_, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN)
        wrong(std::string("the stream takes no requests any more: ") + std::strerror(errno));
      if (sent <= 0) return;
      out_at_ += static_cast<std::size_t>(sent);
    }
    out_.clear();
    out_at_ = 0;
  }

  void pull() {
    if (SteadyClock::now() < reads_at_) return;
    std::byte buffer[1 << 16];
    for (int reads = 0; reads < 4; ++reads) {
      const ssize_t got = ::recv(socket_, buffer, 1 + below(below(3) == 0 ? 20 : sizeof buffer), MSG_DONTWAIT);
      if (got == 0) wrong("the stream has ended");
      if (got <= 0) break;
      in_.insert(in_.end(), buffer, buffer + got);
    }
    std::size_t at = 0;
    while (wrong_.empty() && in_.size() - at >= nbd::reply_bytes) {
      const std::size_t used = answer(at);
      if (used == 0) break;
      at += used;
    }
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  /// How many bytes the reply that begins there has; 0 if it is not whole yet.
  std::size_t answer(std::size_t at) {
    const auto number = [&](std::size_t from, std::size_t bytes) {
      std::uint64_t value = 0;
      for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<std::uint64_t>(in_[at + from + i]);
      return value;
    };
    if (number(0, 4) != 0x67446698) return wrong("what comes is no reply"), 0;
    const auto place = waiting_.find(number(8, 8));
    if (place == waiting_.end()) return wrong("an answer to nothing, or a second one"), 0;
    const Asked& asked = place->second;
    if (number(4, 4) != asked.error) return wrong("another error than expected: " + std::to_string(number(4, 4))), 0;
    const bool data = asked.command == Command::read && asked.error == 0;
    const std::size_t size = nbd::reply_bytes + (data ? asked.length : 0);
    if (in_.size() - at < size) return 0;
    if (data && !std::equal(in_.begin() + static_cast<std::ptrdiff_t>(at + nbd::reply_bytes),
                            in_.begin() + static_cast<std::ptrdiff_t>(at + size), model_.at(asked.offset)))
      return wrong("a read has wrong data"), 0;
    busy_[asked.region] = false;
    waiting_.erase(place);
    ++answered_;
    return size;
  }

  void wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

  const Play& play_;
  int socket_;
  std::mt19937 random_;
  Disk model_;
  Bytes out_, in_;
  std::size_t out_at_ = 0;
  std::vector<bool> busy_;
  std::map<std::uint64_t, Asked> waiting_;
  std::uint64_t cookies_ = 0, answered_ = 0;
  SteadyClock::time_point reads_at_{};
  std::string wrong_;
};

}  // namespace corbd::test
