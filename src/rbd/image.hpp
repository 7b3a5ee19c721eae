// Implements the image port on one open librbd image.
#pragma once

#include <cerrno>

#include "open_image.hpp"

namespace corbd::rbd {

/// The destructor closes it in the background.
class RbdImage final : public image::Image {
 public:
  explicit RbdImage(std::shared_ptr<OpenImage> opened) : opened_(std::move(opened)) {}
  ~RbdImage() override;

  const image::Key& key() const override { return opened_->handle().key; }
  std::uint64_t size() const override { return opened_->checked().size.load(std::memory_order_relaxed); }
  bool read_only() const override { return opened_->handle().read_only; }
  bool exclusive_lock() const override { return opened_->handle().exclusive_lock(); }
  bool needs_flush() const override { return opened_->checked().journaled.load(std::memory_order_relaxed); }
  bool caches_before_flush() const override { return opened_->checked().caches_before_flush; }
  image::ReadPolicy read_policy() const override { return opened_->checked().read_policy; }
  std::string refused_again() const override { return opened_->refused_again(); }
  std::string client() const override { return opened_->handle().connection.addresses.front(); }
  bool client_given_up() const override { return opened_->handle().connection.blocklisted; }

  void read(image::Op& op, std::uint64_t offset, std::span<std::byte> into) override;
  void write(image::Op& op, std::uint64_t offset, std::span<const std::byte> from) override;
  void flush(image::Op& op) override;
  void discard(image::Op& op, std::uint64_t offset, std::uint64_t length) override;
  void write_zeroes(image::Op& op, std::uint64_t offset, std::uint64_t length) override;

  duration unanswered() const override { return opened_->unanswered(); }
  task<result<image::Hearing>> hearing(image::Range range, Until until) override {
    return opened_->hearing(range, until);
  }
  task<result<>> refresh(Until until) override { return opened_->refresh(until); }
  task<result<image::Ownership>> ownership(Until until) override { return opened_->lock().ownership(until); }
  task<result<>> break_dead_lock(std::string owner, std::int64_t break_time, Until until) override {
    return opened_->lock().break_dead(std::move(owner), break_time, until);
  }
  task<result<>> acquire_lock(Until until) override { return opened_->lock().acquire(until); }
  duration lock_took() const override { return opened_->lock().took(); }
  task<result<std::optional<std::uint64_t>>> stamp(Until until) override;
  task<result<>> keep_lock(Until until) override { return opened_->lock().keep(until); }
  task<> lock_taken_over(Until until) override { return opened_->lock().taken_over(until); }
  task<result<>> release_lock(Until until) override { return opened_->lock().release(until); }
  task<result<>> watch_quiesce(image::QuiesceHandlers handlers, Until until) override {
    return opened_->watch_quiesce(std::move(handlers), until);
  }
  task<result<bool>> has_data(Until until) override;
  task<result<std::optional<std::uint64_t>>> used_bytes(Until until) override { return opened_->used_bytes(until); }
  task<result<std::optional<std::string>>> metadata(std::string name, Until until) override;
  task<result<std::map<std::string, std::string>>> metadata_below(std::string prefix, Until until) override;
  task<result<>> set_metadata(std::string name, std::string value, Until until) override;
  task<result<>> remove_metadata(std::string name, Until until) override;
  void retire_client() override { opened_->connections().retire_denied(opened_->lease().connection()); }
  void give_up_client() override {
    // The client of an image that has closed may be another's by now.
    if (opened_->lease().connection()) opened_->handle().connection.observe_result(-ESHUTDOWN);
  }
  task<result<>> close(Until until) override;

 private:
  std::string text() const { return opened_->handle().text(); }
  std::shared_ptr<OpenImage> opened_;
};

}  // namespace corbd::rbd
