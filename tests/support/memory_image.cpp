#include "support/memory_image.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace corbd::test {
namespace {

constexpr std::size_t kReserved = 4096;  // operations, for tests that count allocations

}  // namespace

MemoryImage::MemoryImage(std::uint64_t bytes, Ends ends, bool read_only, std::string fsid)
    : key_{std::move(fsid), 1, "", "memory", 0}, read_only_(read_only), bytes_(bytes), ends_(ends) {
  set_ends(ends);
}

MemoryImage::~MemoryImage() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MemoryImage::work_elsewhere() {
  std::vector<End> batch;
  batch.reserve(kReserved);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !elsewhere_.empty(); });
    if (elsewhere_.empty()) return;
    batch.swap(elsewhere_);
    lock.unlock();
    for (const End& end : batch) end.op->done(end.op, end.result);
    batch.clear();
    lock.lock();
  }
}

void MemoryImage::set_ends(Ends ends) {
  const std::lock_guard lock(mutex_);
  ends_ = ends;
  if (ends == Ends::when_told) told_.reserve(kReserved);
  if (ends == Ends::elsewhere) elsewhere_.reserve(kReserved);
  if (ends == Ends::elsewhere && !thread_.joinable()) thread_ = std::thread([this] { work_elsewhere(); });
}

void MemoryImage::fail(Io io, int error, std::size_t times) {
  const std::lock_guard lock(mutex_);
  failures_[io] = {error, times};
}

std::size_t MemoryImage::release(std::size_t count) {
  std::vector<End> ending;
  {
    const std::lock_guard lock(mutex_);
    const auto last = told_.begin() + static_cast<std::ptrdiff_t>(std::min(count, told_.size()));
    ending.assign(told_.begin(), last);
    told_.erase(told_.begin(), last);
  }
  for (const End& end : ending) end.op->done(end.op, end.result);
  return ending.size();
}

std::size_t MemoryImage::waiting() const {
  const std::lock_guard lock(mutex_);
  return told_.size();
}

void MemoryImage::resize(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_.resize(bytes);
}

void MemoryImage::remember_calls(bool on) {
  const std::lock_guard lock(mutex_);
  remember_ = on;
}

std::vector<MemoryImage::Call> MemoryImage::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::vector<std::byte> MemoryImage::content() const {
  const std::lock_guard lock(mutex_);
  return {bytes_.begin(), bytes_.end()};
}

std::uint64_t MemoryImage::size() const {
  const std::lock_guard lock(mutex_);
  return bytes_.size();
}

/// Returns 0, or -errno.
int MemoryImage::outcome(const Call& call) {
  if (remember_) calls_.push_back(call);
  const auto failure = failures_.find(call.io);
  if (failure != failures_.end() && failure->second.times > 0) {
    --failure->second.times;
    return -failure->second.error;
  }
  return call.offset + call.length > bytes_.size() ? -EINVAL : 0;
}

template <class Work>
void MemoryImage::run(image::Op& op, Call call, Work work) {
  std::unique_lock lock(mutex_);
  const int result = outcome(call);
  if (result == 0) work(bytes_.data() + call.offset);
  switch (ends_) {
    case Ends::at_once:
      lock.unlock();
      return op.done(&op, result);
    case Ends::when_told:
      told_.push_back({&op, result});
      return;
    case Ends::elsewhere:
      elsewhere_.push_back({&op, result});
      lock.unlock();
      changed_.notify_one();
  }
}

void MemoryImage::read(image::Op& op, std::uint64_t offset, std::span<std::byte> into) {
  run(op, {Io::read, offset, into.size()}, [&](const std::byte* at) { std::memcpy(into.data(), at, into.size()); });
}

void MemoryImage::write(image::Op& op, std::uint64_t offset, std::span<const std::byte> from) {
  run(op, {Io::write, offset, from.size()}, [&](std::byte* at) { std::memcpy(at, from.data(), from.size()); });
}

void MemoryImage::flush(image::Op& op) {
  run(op, {Io::flush, 0, 0}, [](std::byte*) {});
}

void MemoryImage::zero(image::Op& op, Call call) {
  run(op, call, [&](std::byte* at) { std::memset(at, 0, call.length); });
}

void MemoryImage::discard(image::Op& op, std::uint64_t offset, std::uint64_t length) {
  zero(op, {Io::discard, offset, length});
}
void MemoryImage::write_zeroes(image::Op& op, std::uint64_t offset, std::uint64_t length) {
  zero(op, {Io::write_zeroes, offset, length});
}

task<result<>> MemoryImage::refresh(Until) { co_return result<>(); }
task<result<image::Ownership>> MemoryImage::ownership(Until) {
  image::Ownership found;
  found.lock = image::Ownership::Lock::mine;
  co_return found;
}
task<result<>> MemoryImage::break_dead_lock(std::string, std::int64_t, Until) { co_return result<>(); }
task<result<>> MemoryImage::acquire_lock(Until) { co_return result<>(); }
task<result<>> MemoryImage::release_lock(Until) { co_return result<>(); }
task<result<>> MemoryImage::close(Until) { co_return result<>(); }

task<result<bool>> MemoryImage::has_data(Until) {
  const auto bytes = content();
  co_return std::any_of(bytes.begin(), bytes.end(), [](std::byte one) { return one != std::byte{0}; });
}

task<result<std::optional<std::string>>> MemoryImage::metadata(std::string name, Until) {
  const auto found = metadata_.find(name);
  co_return found == metadata_.end() ? std::nullopt : std::optional(found->second);
}

task<result<std::map<std::string, std::string>>> MemoryImage::metadata_below(std::string prefix, Until) {
  std::map<std::string, std::string> found;
  for (const auto& [name, value] : metadata_)
    if (name.starts_with(prefix)) found[name] = value;
  co_return found;
}

task<result<>> MemoryImage::set_metadata(std::string name, std::string value, Until) {
  metadata_[name] = value;
  co_return result<>();
}

task<result<>> MemoryImage::remove_metadata(std::string name, Until) {
  metadata_.erase(name);
  co_return result<>();
}

}  // namespace corbd::test
