// The server of a device that was given up: an image that answers EIO to everything.
#include <cerrno>

#include "volume.hpp"

namespace corbd::volume {
namespace {

class EioImage final : public image::Image {
 public:
  EioImage(image::Key key, std::uint64_t size, bool read_only)
      : key_(std::move(key)), size_(size), read_only_(read_only) {}
  const image::Key& key() const override { return key_; }
  std::uint64_t size() const override { return size_; }
  bool read_only() const override { return read_only_; }
  bool exclusive_lock() const override { return false; }
  std::string client() const override { return {}; }

  void read(image::Op& op, std::uint64_t, std::span<std::byte>) override { op.done(&op, -EIO); }
  void write(image::Op& op, std::uint64_t, std::span<const std::byte>) override { op.done(&op, -EIO); }
  void flush(image::Op& op) override { op.done(&op, -EIO); }
  void discard(image::Op& op, std::uint64_t, std::uint64_t) override { op.done(&op, -EIO); }
  void write_zeroes(image::Op& op, std::uint64_t, std::uint64_t) override { op.done(&op, -EIO); }

  task<result<>> refresh(Until) override { co_return refused(); }
  task<result<image::Ownership>> ownership(Until) override { co_return refused(); }
  task<result<>> break_dead_lock(std::string, std::int64_t, Until) override { co_return refused(); }
  task<result<>> acquire_lock(Until) override { co_return refused(); }
  task<result<>> release_lock(Until) override { co_return result<>(); }
  task<result<bool>> has_data(Until) override { co_return refused(); }
  task<result<std::optional<std::string>>> metadata(std::string, Until) override { co_return refused(); }
  task<result<std::map<std::string, std::string>>> metadata_below(std::string, Until) override { co_return refused(); }
  task<result<>> set_metadata(std::string, std::string, Until) override { co_return refused(); }
  task<result<>> remove_metadata(std::string, Until) override { co_return refused(); }
  task<result<>> close(Until) override { co_return result<>(); }

 private:
  Error refused() const { return {errc::lost, "image " + key_.text() + " was given up"}; }
  const image::Key key_;
  const std::uint64_t size_;
  const bool read_only_;
};

}  // namespace

std::unique_ptr<image::Image> make_tombstone(image::Key key, std::uint64_t size, bool read_only) {
  return std::make_unique<EioImage>(std::move(key), size, read_only);
}

}  // namespace corbd::volume
