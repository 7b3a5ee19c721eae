// Memory for payloads, and the budget of bytes in flight. Shared by all devices of an io thread; used on that thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace corbd::nbd {

/// Freed buffers are kept by size class, so that a busy device asks nobody for memory. When none is in use any more, all but `keep_bytes`
/// go back to the system.
class Buffers {
 public:
  explicit Buffers(std::size_t keep_bytes) : keep_bytes_(keep_bytes) {}
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  /// What a buffer of that many bytes really takes: a power of two, at least 4 KiB.
  static std::size_t rounded(std::size_t bytes);
  /// Aligned to 4 KiB.
  std::byte* take(std::size_t bytes);
  void give(std::byte* buffer, std::size_t bytes);
  /// How often the system was asked.
  std::uint64_t made() const { return made_; }

 private:
  static constexpr std::size_t kClasses = 20;  // 4 KiB to 2 GiB
  static std::size_t class_of(std::size_t bytes);
  void trim();

  std::size_t keep_bytes_;
  std::size_t kept_ = 0, used_ = 0;  ///< bytes
  std::uint64_t made_ = 0;
  std::array<std::vector<std::byte*>, kClasses> free_;
};

/// Bytes that may be in flight at once, over all devices. Above it each device may have one largest request, so that none is starved by
/// others: whoever is refused has something in flight itself, whose end lets it go on.
class Budget {
 public:
  class Waiter {
   public:
    virtual void budget_freed() = 0;

   protected:
    ~Waiter() = default;

   private:
    friend class Budget;
    Waiter* next_ = nullptr;
    bool waits_ = false;
    std::uint64_t wants_ = 0;
  };

  Budget(std::uint64_t bytes, std::uint64_t per_device);
  /// in_flight: what the device has taken already.
  bool take(std::uint64_t bytes, std::uint64_t in_flight);
  /// Tells those who wait, in the order they came, as far as the bytes may reach.
  void give(std::uint64_t bytes);
  void wait(Waiter& waiter, std::uint64_t bytes);
  void forget(Waiter& waiter);

 private:
  std::int64_t free_;  ///< below zero by what the reservations took
  std::uint64_t per_device_;
  Waiter* first_ = nullptr;
};

}  // namespace corbd::nbd
