// The budget of bytes in flight. Shared by all devices of an io thread; used on that thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace corbd::nbd {

/// Bounds the bytes in flight, over all devices. Above it each device may have `per_device`, or one request that is
/// longer, so that no device starves another: a refused device has a request in flight, and goes on when that ends. So
/// the sum never exceeds the budget plus, for each device, the larger of `per_device` and its longest request.
///
/// A hung cluster gives nothing back. So while there are devices of several clusters, the requests of one may take no
/// more than four times the bytes that are left (dynamic thresholds, Choudhury and Hahne 1998): one that hangs leaves a
/// fifth, of which the next may take four fifths.
class Budget {
  struct Share;

 public:
  class Waiter {
   public:
    virtual void budget_freed() = 0;

   protected:
    ~Waiter() = default;

   private:
    friend class Budget;
    std::shared_ptr<Share> share_;
    Waiter* next_ = nullptr;
    bool waits_ = false;
    std::uint64_t wants_ = 0;
    std::uint64_t granted_ = 0;
  };

  Budget(std::uint64_t bytes, std::uint64_t per_device) : bytes_(bytes), per_device_(per_device) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// Call it once, before anything else. The device counts for `cluster` until it is destroyed, which is before the
  /// budget.
  void join(Waiter& device, const std::string& cluster);
  /// `in_flight`: bytes that the device has already. A refused caller must wait(), and then ask for the same again.
  bool take(Waiter& device, std::uint64_t bytes, std::uint64_t in_flight);
  /// Adds bytes that were in flight when an earlier process died, even without room for them.
  void resume(Waiter& device, std::uint64_t bytes) { add(*device.share_, bytes); }
  void give_back(Waiter& device, std::uint64_t bytes);
  /// Tells the waiter when the bytes are its own. Waiters of a cluster are served in order, and clusters in turn. A
  /// waiter that needs only freed bytes is never overtaken.
  void wait(Waiter& waiter, std::uint64_t bytes);
  void forget(Waiter& waiter);

  // Callable from any thread.
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t per_device() const { return per_device_; }
  std::uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  /// The devices of one cluster.
  struct Share : std::enable_shared_from_this<Share> {
    Share(Budget& budget, std::string id) : of(budget), cluster(std::move(id)) { of.shares_.push_back(this); }
    ~Share() { std::erase(of.shares_, this); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    Budget& of;
    const std::string cluster;
    std::uint64_t used = 0;
    Waiter* first = nullptr;
  };

  bool has_room(std::uint64_t bytes) const { return used() + bytes <= bytes_; }
  /// Whether the share may grow by that much, if there is room.
  bool may_grow(const Share& share, std::uint64_t bytes) const;
  /// Whether another device of the share waits, or any device that waits only for room.
  bool must_queue(const Share& share) const;
  void add(Share& share, std::uint64_t bytes);
  static void remove(Waiter& waiter);
  void grant();

  const std::uint64_t bytes_, per_device_;
  std::atomic<std::uint64_t> used_{0};  ///< exceeds bytes_ by the bytes of the reservations
  std::vector<Share*> shares_;
  std::size_t turn_ = 0;  ///< index in shares_ of the next one to be served
};

}  // namespace corbd::nbd
