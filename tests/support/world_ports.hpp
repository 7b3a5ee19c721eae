// The fakes behind the agent's ports, for the files of the world only.
#pragma once

#include "support/world.hpp"

namespace corbd::test {

/// Where a request of the kernel came from: it goes with the operation through the image into the cluster.
struct SessionOp : image::Op {
  World::FakeLink* link = nullptr;
  std::uint32_t device = 0;
  std::uint64_t request = 0;
  bool write = true;
  std::array<std::byte, sizeof(std::uint64_t)> buffer{};
};

struct World::Work {
  int life = 0;
  std::string client;
  std::string image_id;
  bool write = true;
  std::size_t block = 0;
  std::uint64_t number = 0;
  std::uint64_t device_visits = 0,
                link_visits = 0;  ///< what other nodes had done when the device and the link were made
  std::function<void(int error, std::uint64_t number)> done;
};

struct World::Reply {
  Reply(executor control, Clock& clock) : done(std::move(control), clock) {}
  Event done;
  result<> value;
};

/// A call under way. The caller may have left, or died.
struct World::Asked {
  std::string call, by;
  bool of_cluster = false;
  Fate fate;
  Effect effect;
  std::weak_ptr<Reply> reply;
  int life = 0;
  bool of_driver = false;
  std::function<void(const result<>&)> told = {};  ///< when its end is known to the agent's process, whoever has left
};

struct World::HelperJob {
  std::shared_ptr<Asked> asked;
  std::optional<std::uint32_t> device;
  std::string busy_file;
  bool syncs = false;  ///< needs the device only for what that owes
  bool waits = false;
  bool gone = false;  ///< with its machine
};

class World::FakeOpened final : public image::Image {
 public:
  FakeOpened(World& world, FakeImage& of, std::string client, image::OpenOptions options);
  ~FakeOpened() override;
  const image::Key& key() const override { return key_; }
  std::uint64_t size() const override { return size_; }
  bool read_only() const override { return options_.read_only; }
  bool exclusive_lock() const override { return exclusive_; }
  void read(image::Op& op, std::uint64_t offset, std::span<std::byte> into) override;
  void write(image::Op& op, std::uint64_t offset, std::span<const std::byte> from) override;
  void flush(image::Op& op) override { op.done(&op, 0); }
  void discard(image::Op& op, std::uint64_t, std::uint64_t) override { op.done(&op, 0); }
  void write_zeroes(image::Op& op, std::uint64_t, std::uint64_t) override { op.done(&op, 0); }
  task<result<>> refresh(Until until) override;
  task<result<image::Ownership>> ownership(Until until) override;
  task<result<>> break_dead_lock(std::string owner, std::int64_t mark, Until until) override;
  task<result<>> acquire_lock(Until until) override;
  task<result<>> release_lock(Until until) override;
  task<result<bool>> has_data(Until until) override;
  task<result<std::optional<std::string>>> metadata(std::string name, Until until) override;
  task<result<>> set_metadata(std::string name, std::string value, Until until) override;
  task<result<>> remove_metadata(std::string name, Until until) override;
  task<result<>> close(Until until) override;

  std::string client() const override { return client_; }
  void cut_off(const std::string& why);
  /// Its owner is told, if the size is another one.
  void resized();

 private:
  Work work_of(const image::Op& op, std::uint64_t offset) const;
  task<result<>> ask(std::string call, Until until, Effect effect);
  struct Handle {
    std::string image_id, client;
    int serial;
    std::shared_ptr<bool> gone;
  };
  static void close_now(World& world, const Handle& handle);
  static void close_later(World& world, const Handle& handle, int life);
  World& world_;
  const int serial_;
  const std::string client_;
  const bool exclusive_;
  std::uint64_t size_;  ///< as the cluster told it
  image::OpenOptions options_;
  image::Key key_;
  bool told_ = false;
  bool closed_ = false;                                               ///< as its owner was told
  const std::shared_ptr<bool> gone_ = std::make_shared<bool>(false);  ///< in the cluster
};

/// nbd's session, as far as the control side and the kernel see it.
class World::FakeLink final : public device::Link {
 public:
  FakeLink(World& world, image::Image& image, std::function<void()> on_stopped);
  ~FakeLink() override;
  State state() const override { return state_; }
  int error() const override { return error_; }
  void shut() override { stop(State::closed, 0); }
  void hold() override { stop(State::held, ESHUTDOWN); }
  task<Waited> idle(Until until) override { return idle_.wait(until); }
  task<Waited> drain(Until until) override;
  std::uint64_t in_flight() const override { return ops_.size(); }
  duration oldest() const override { return ops_.empty() ? duration::zero() : world_.loop().clock.now() - busy_since_; }

  std::optional<time_point> first_answer() const override { return first_answer_; }

  void take(std::uint32_t device, const KernelRequest& request);
  void stop(State state, int error);
  /// The image's client, if it is an image.
  const FakeOpened* opened() const { return dynamic_cast<const FakeOpened*>(&image_); }
  bool tombstone() const { return opened() == nullptr; }
  const int serial;
  const std::string image_id;
  const std::uint64_t visits;          ///< of other nodes when the link was made
  std::optional<std::uint32_t> given;  ///< the device that has its other end

 private:
  static void completed(image::Op* op, int result) noexcept;
  void end(SessionOp& op, int result);
  World& world_;
  image::Image& image_;
  std::function<void()> on_stopped_;
  State state_ = State::serving;
  int error_ = 0;
  bool draining_ = false;
  std::list<SessionOp> ops_;
  time_point busy_since_{};
  std::optional<time_point> first_answer_;
  Event idle_, drained_;
};

std::unique_ptr<image::Clusters> make_clusters(World& world);
std::unique_ptr<device::Devices> make_devices(World& world);
std::unique_ptr<device::KernelClient> make_kernel_client(World& world);
std::unique_ptr<host::Mounts> make_mounts(World& world);
std::unique_ptr<host::Daemons> make_daemons(World& world);
std::unique_ptr<host::Filesystems> make_filesystems(World& world);
std::unique_ptr<host::Luks> make_luks(World& world);
std::unique_ptr<kms::Kms> make_kms(World& world);
/// A format begins on the device: a death in the middle leaves extents and no signature.
void begin_format(World& world, const std::string& device);
/// Whether a write through the device would be stored.
bool takes_writes(const World& world, const KernelDevice& on);
std::unique_ptr<volume::RecordStore> make_store(World& world);

}  // namespace corbd::test
