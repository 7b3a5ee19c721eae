// Sends random requests to an image, several at once, and compares what it reads with a model of its bytes. Requests
// that touch each other go one after another, in the order of the seed, so the bytes at the end are a function of it.
//
// The model's file has a Model::Content for each sector of the image. So a file of zeroes is the model of a new image,
// a truncated file that of an image that was resized, and a copy that of a snapshot.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "model.hpp"
#include "options.hpp"
#include "threads.hpp"

namespace corbd::writer {
namespace {

class File {
 public:
  File(const std::string& path, int flags) : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) die("open " + path);
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }
  std::uint64_t size() const {
    const off_t end = ::lseek(fd_, 0, SEEK_END);
    if (end < 0) die("size of " + path_);
    return static_cast<std::uint64_t>(end);
  }
  /// An errno; 0: done.
  int read(std::span<std::byte> data, std::uint64_t offset) const { return transfer(::pread, data, offset); }
  int write(std::span<std::byte> data, std::uint64_t offset) const { return transfer(::pwrite, data, offset); }

 private:
  int transfer(auto call, std::span<std::byte> data, std::uint64_t offset) const {
    while (!data.empty()) {
      const ssize_t n = call(fd_, data.data(), data.size(), static_cast<off_t>(offset));
      if (n <= 0) return n < 0 ? errno : EIO;
      data = data.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
    return 0;
  }

  std::string path_;
  int fd_;
};

std::vector<Model::Content> load(const std::string& path) {
  const File file(path, O_RDONLY);
  std::vector<Model::Content> sectors(file.size() / sizeof(Model::Content));
  if (const int error = file.read(std::as_writable_bytes(std::span(sectors)), 0)) errno = error, die("read " + path);
  return sectors;
}

void save(const std::string& path, std::vector<Model::Content> sectors) {
  const File file(path, O_WRONLY);
  if (const int error = file.write(std::as_writable_bytes(std::span(sectors)), 0)) errno = error, die("write " + path);
}

class Image {
 public:
  explicit Image(const std::string& path) : file_(path, O_RDWR | O_DIRECT) {
    struct stat st{};
    if (::fstat(file_.fd(), &st) != 0) die("stat " + path);
    regular_ = S_ISREG(st.st_mode);
  }

  std::uint64_t size() const { return file_.size(); }

  /// An errno; 0: done.
  int perform(const Request& request, std::span<Sector> data) const {
    const auto bytes = std::as_writable_bytes(data.first(request.length / sector_size));
    switch (request.kind) {
      case Kind::read:
        return file_.read(bytes, request.offset);
      case Kind::write:
        return file_.write(bytes, request.offset);
      case Kind::discard:
        return regular_ ? change(request, FALLOC_FL_PUNCH_HOLE) : ask(request, BLKDISCARD);
      case Kind::zero:
        return regular_ ? change(request, FALLOC_FL_ZERO_RANGE) : ask(request, BLKZEROOUT);
      case Kind::zero_range:
        return change(request, FALLOC_FL_ZERO_RANGE);
      case Kind::punch_hole:
        return change(request, FALLOC_FL_PUNCH_HOLE);
      case Kind::sync:
        return ::fdatasync(file_.fd()) == 0 ? 0 : errno;
    }
    return EINVAL;
  }

 private:
  int change(const Request& request, int how) const {
    const auto offset = static_cast<off_t>(request.offset), length = static_cast<off_t>(request.length);
    return ::fallocate(file_.fd(), how | FALLOC_FL_KEEP_SIZE, offset, length) == 0 ? 0 : errno;
  }
  int ask(const Request& request, unsigned long command) const {
    std::array<std::uint64_t, 2> range{request.offset, request.length};
    return ::ioctl(file_.fd(), command, range.data()) == 0 ? 0 : errno;
  }

  File file_;
  bool regular_ = false;
};

class Player {
 public:
  explicit Player(const Options& o)
      : image_(o.path),
        journal_(o.journal(), O_WRONLY | O_CREAT | O_APPEND),
        model_(load(o.model), o.layout),
        requests_(o.seed, o.first, model_.size(), o.layout),
        left_(o.requests) {}

  bool fits() const { return image_.size() == model_.size() && model_.size() > 0; }

  void work() {
    const auto buffer = std::make_unique<Sector[]>(Requests::longest / sector_size);
    const std::span<Sector> data(buffer.get(), Requests::longest / sector_size);
    while (const Request* const request = begin()) {
      if (request->kind == Kind::write) fill(*request, data);
      end(*request, image_.perform(*request, data), data);
    }
    stopping = true;
  }

  void tell(const Options& o, unsigned hung) {
    const std::lock_guard guard(mutex_);
    for (const Request* one : under_way_) std::fprintf(stderr, "corbd-writer: no end: %s\n", one->text().c_str());
    std::printf("{\"requests\":%zu,\"reads\":%lu,\"not_supported\":%lu,\"failed\":%lu,\"hung\":%u}\n", begun_.size(),
                reads_, not_supported_, failed_, hung);
    std::fflush(stdout);
    if (!hung && !failed_) save(o.model, model_.sectors());
  }
  bool failed() const { return failed_ != 0; }

 private:
  /// The next request, once nothing that touches it is under way; null: there is none.
  const Request* begin() {
    std::unique_lock lock(mutex_);
    // One waits for its turn at a time, so they begin in their order.
    turn_.wait(lock, [&] { return !waiting_ || stopping; });
    if (stopping || left_ == 0) return nullptr;
    waiting_ = true;
    begun_.push_back(std::make_unique<Request>(requests_.next()));
    const Request* const mine = begun_.back().get();
    --left_;
    turn_.wait(
        lock, [&] { return std::ranges::none_of(under_way_, [&](const Request* one) { return clash(*one, *mine); }); });
    under_way_.push_back(mine);
    waiting_ = false;
    turn_.notify_all();
    return mine;
  }

  void end(const Request& request, int error, std::span<const Sector> data) {
    const std::lock_guard guard(mutex_);
    std::erase(under_way_, &request);
    // A device without WRITE_ZEROES does not punch holes, and says so before it does anything.
    if (request.kind == Kind::punch_hole && error == EOPNOTSUPP) {
      ++not_supported_;
    } else if (error != 0) {
      fail(request, std::strerror(error));
    } else {
      reads_ += request.kind == Kind::read;
      const std::string wrong = model_.ended(request, data);
      if (!wrong.empty()) fail(request, wrong);
    }
    if (::write(journal_.fd(), &request, sizeof request) != static_cast<ssize_t>(sizeof request))
      die("write to the journal");
    turn_.notify_all();
  }

  void fail(const Request& request, const std::string& what) {
    stopping = true;
    if (failed_++ > 0) return;
    std::fprintf(stderr, "corbd-writer: request %s: %s\n", request.text().c_str(), what.c_str());
    std::vector<const Request*> near;
    for (const auto& one : begun_)
      if (one.get() != &request && one->kind != Kind::read && one->touches(request)) near.push_back(one.get());
    for (std::size_t i = near.size() > 10 ? near.size() - 10 : 0; i < near.size(); ++i)
      std::fprintf(stderr, "corbd-writer: before that: %s\n", near[i]->text().c_str());
  }

  static bool clash(const Request& one, const Request& other) {
    return one.touches(other) && (one.kind != Kind::read || other.kind != Kind::read);
  }

  Image image_;
  File journal_;
  std::mutex mutex_;
  std::condition_variable turn_;
  Model model_;
  Requests requests_;
  std::uint64_t left_, reads_ = 0, not_supported_ = 0, failed_ = 0;
  bool waiting_ = false;
  std::vector<std::unique_ptr<Request>> begun_;
  std::vector<const Request*> under_way_;
};

}  // namespace

int run_modelled(const Options& o) {
  Player player(o);
  if (!player.fits()) {
    std::fprintf(stderr, "corbd-writer: %s does not have the size of its model %s\n", o.path.c_str(), o.model.c_str());
    return 2;
  }
  const unsigned hung = run_threads(o, o.threads, [&](unsigned) { player.work(); });
  player.tell(o, hung);
  _exit(hung ? 4 : player.failed() ? 1 : 0);
}

int check_modelled(const Options& o) {
  const File file(o.path, O_RDONLY);
  Model model(load(o.model), o.layout);
  std::uint64_t wrong = 0;
  if (file.size() != model.size()) {
    ++wrong;
    std::fprintf(stderr, "corbd-writer: %s has %lu bytes, not %lu\n", o.path.c_str(), file.size(), model.size());
  }
  constexpr std::size_t at_once = 2048;
  const auto buffer = std::make_unique<Sector[]>(at_once);
  const std::uint64_t end = std::min(file.size(), model.size());
  for (std::uint64_t at = 0; at < end; at += at_once * sector_size) {
    const std::span<Sector> found(buffer.get(), std::min(at_once, (end - at) / sector_size));
    if (const int error = file.read(std::as_writable_bytes(found), at)) errno = error, die("read " + o.path);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::string difference = model.check(at + i * sector_size, found.subspan(i, 1));
      if (!difference.empty() && wrong++ < 5) std::fprintf(stderr, "corbd-writer: %s\n", difference.c_str());
    }
  }
  std::printf("{\"sectors\":%zu,\"wrong\":%lu}\n", model.sectors().size(), wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace corbd::writer
