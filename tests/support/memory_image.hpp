// An image in memory. A test decides when and how its operations end.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "corbd/image/image.hpp"

namespace corbd::test {

/// Memory that takes no page before it is used, so that a thousand images that nobody writes take none. malloc() may
/// give pages that others used.
template <class T>
struct Untouched {
  using value_type = T;
  static T* allocate(std::size_t count) {
    void* made = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(made);
  }
  static void deallocate(T* made, std::size_t count) noexcept { ::munmap(made, count * sizeof(T)); }
  static void construct(T*) noexcept {}  ///< it is zero already
  bool operator==(const Untouched&) const = default;
};

/// Any thread may control it. Data moves when an operation is submitted; only its end comes later.
class MemoryImage final : public image::Image {
 public:
  enum class Io { read, write, flush, discard, write_zeroes };
  enum class Ends {
    at_once,    ///< inside the submitting call
    elsewhere,  ///< on a thread of the image
    when_told   ///< by release()
  };
  struct Call {
    Io io;
    std::uint64_t offset, length;
    bool operator==(const Call&) const = default;
  };

  explicit MemoryImage(std::uint64_t bytes, Ends ends = Ends::at_once, bool read_only = false,
                       std::string fsid = "fsid");
  ~MemoryImage() override;

  void set_ends(Ends ends);
  /// Makes the next `times` operations of that kind end with -error and do nothing.
  void fail(Io io, int error, std::size_t times = 1);
  /// Ends the first `count` of the waiting operations, on this thread. Returns their number.
  std::size_t release(std::size_t count = SIZE_MAX);
  std::size_t waiting() const;
  void resize(std::uint64_t bytes);
  void set_needs_flush(bool needs) { needs_flush_ = needs; }
  /// Switches the record of calls, which allocates, for tests that count allocations.
  void remember_calls(bool on);
  std::vector<Call> calls() const;
  std::vector<std::byte> content() const;

  const image::Key& key() const override { return key_; }
  std::uint64_t size() const override;
  bool read_only() const override { return read_only_; }
  bool exclusive_lock() const override { return true; }
  bool needs_flush() const override { return needs_flush_; }
  std::string client() const override { return "10.0.0.1:0/1"; }
  void read(image::Op& op, std::uint64_t offset, std::span<std::byte> into) override;
  void write(image::Op& op, std::uint64_t offset, std::span<const std::byte> from) override;
  void flush(image::Op& op) override;
  void discard(image::Op& op, std::uint64_t offset, std::uint64_t length) override;
  void write_zeroes(image::Op& op, std::uint64_t offset, std::uint64_t length) override;

  task<result<>> refresh(Until until) override;
  task<result<image::Ownership>> ownership(Until until) override;
  task<result<>> break_dead_lock(std::string owner, std::int64_t break_time, Until until) override;
  task<result<>> acquire_lock(Until until) override;
  task<result<>> release_lock(Until until) override;
  task<result<bool>> has_data(Until until) override;
  task<result<std::optional<std::string>>> metadata(std::string name, Until until) override;
  task<result<std::map<std::string, std::string>>> metadata_below(std::string prefix, Until until) override;
  task<result<>> set_metadata(std::string name, std::string value, Until until) override;
  task<result<>> remove_metadata(std::string name, Until until) override;
  task<result<>> close(Until until) override;

 private:
  struct End {
    image::Op* op;
    int result;
  };
  template <class Work>
  void run(image::Op& op, Call call, Work work);
  void zero(image::Op& op, Call call);
  int outcome(const Call& call);
  void work_elsewhere();

  const image::Key key_;
  const bool read_only_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte, Untouched<std::byte>> bytes_;
  Ends ends_;
  bool remember_ = true, stopping_ = false;
  std::atomic<bool> needs_flush_{true};
  std::vector<Call> calls_;
  struct InjectedError {
    int error;
    std::size_t times;
  };
  std::map<Io, InjectedError> failures_;
  std::vector<End> told_, elsewhere_;
  std::map<std::string, std::string> metadata_;
  std::thread thread_;
};

}  // namespace corbd::test
