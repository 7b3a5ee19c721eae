// The fakes behind the agent's ports, for the files of the world only.
#pragma once

#include "support/world/world.hpp"

namespace corbd::nbd {
class LostCache;
}

namespace corbd::test {

/// A request of the kernel: it goes with the operation through the image into the cluster.
struct SessionOp : image::Op {
  FakeLink* link = nullptr;
  std::uint32_t device = 0;
  std::uint64_t request = 0;
  bool write = true, tells_loss = false;
  std::array<std::byte, sizeof(std::uint64_t)> buffer{};
};

struct Work {
  World* node = nullptr;
  int life = 0;
  time_point sent;
  bool with_lock = true;  ///< by librbd's knowledge when it sends
  std::string client;
  std::string image_id;
  bool write = true;
  std::size_t block = 0;
  std::uint64_t number = 0;
  std::uint64_t device_visits = 0,
                link_visits = 0;  ///< visits of other nodes when the device and the link were made
  std::function<void(int error, std::uint64_t number)> done;
};

/// Returns why the image's state, and the metadata of image and pool, forbid opening it with these options.
std::optional<Error> why_refused(const FakeImage& image, const image::OpenOptions& options, bool pool_caches);

class FakeOpened final : public image::Image {
 public:
  FakeOpened(World& world, FakeImage& of, std::string client, image::OpenOptions options);
  ~FakeOpened() override;
  const image::Key& key() const override { return key_; }
  std::uint64_t size() const override { return size_; }
  bool read_only() const override { return options_.read_only; }
  bool exclusive_lock() const override { return exclusive_; }
  bool needs_flush() const override;
  bool caches_before_flush() const override { return caches_before_flush_; }
  image::ReadPolicy read_policy() const override { return reads_; }
  std::string refused_again() const override;
  void read(image::Op& op, std::uint64_t offset, std::span<std::byte> into) override;
  void write(image::Op& op, std::uint64_t offset, std::span<const std::byte> from) override;
  void flush(image::Op& op) override { op.done(&op, 0); }
  void discard(image::Op& op, std::uint64_t, std::uint64_t) override { op.done(&op, 0); }
  void write_zeroes(image::Op& op, std::uint64_t, std::uint64_t) override { op.done(&op, 0); }
  duration unanswered() const override;
  task<result<image::Hearing>> hearing(image::Range range, Until until) override;
  task<result<>> refresh(Until until) override;
  task<result<image::Ownership>> ownership(Until until) override;
  task<result<>> break_dead_lock(std::string owner, std::int64_t break_time, Until until) override;
  task<result<>> acquire_lock(Until until) override;
  duration lock_took() const override { return lock_took_; }
  task<result<std::optional<std::uint64_t>>> stamp(Until until) override;
  task<result<>> keep_lock(Until until) override;
  task<> lock_taken_over(Until until) override;
  task<result<>> release_lock(Until until) override;
  task<result<>> watch_quiesce(image::QuiesceHandlers handlers, Until) override {
    quiesce_ = std::move(handlers);
    co_return result<>();
  }
  /// Plays a snapshotter's request. `told` gets its answer. False: nobody watches.
  bool quiesce(std::function<void(int)> told);
  void unquiesce();
  task<result<bool>> has_data(Until until) override;
  task<result<std::optional<std::uint64_t>>> used_bytes(Until until) override;
  task<result<std::optional<std::string>>> metadata(std::string name, Until until) override;
  task<result<std::map<std::string, std::string>>> metadata_below(std::string prefix, Until until) override;
  task<result<>> set_metadata(std::string name, std::string value, Until until) override;
  task<result<>> remove_metadata(std::string name, Until until) override;
  void retire_client() override { world_.cluster.retired.insert(client_); }
  void give_up_client() override;
  task<result<>> close(Until until) override;

  std::string client() const override { return client_; }
  bool client_given_up() const override { return world_.agent.node.cut.contains(client_); }
  const World& node() const { return world_; }
  bool is_closed() const { return *gone_; }  ///< in the cluster
  /// Whether nothing is left of it but its close: its client has neither the lock nor the writer's mark.
  bool only_closes() const;
  void cut_off(const std::string& why);
  /// Tells its owner, if the size has changed.
  void resized();

 private:
  Work work_of(const image::Op& op, std::uint64_t offset) const;
  task<result<>> ask(std::string call, Until until, Calls::Effect effect);
  task<result<>> see_header(Until until);
  struct LockTime {
    time_point began;   ///< when its header was seen
    time_point taken;   ///< when the lock was taken
    bool left = false;  ///< the caller has left before the answer
  };
  task<result<>> take_lock(Until until, std::shared_ptr<LockTime> at);
  struct Handle {
    std::string image_id, client;
    int serial;
    std::shared_ptr<bool> gone;
    bool lock_kept = false;
  };
  static void close_now(World& world, const Handle& handle);
  static bool has_another(const World& world, const std::string& image_id, const std::string& client, int serial,
                          bool readers_too);
  static void close_later(World& world, const Handle& handle, int life);
  World& world_;
  const int serial_;
  std::uint64_t seen_version_ = 0;
  duration lock_took_{};
  const std::string client_;
  const bool exclusive_, caches_before_flush_;
  const image::ReadPolicy reads_;
  std::uint64_t size_;  ///< by the cluster's last answer
  image::OpenOptions options_;
  image::Key key_;
  /// Values that no client is told, by the last refresh. They go with this object.
  struct Seen {
    bool pool_caches = false;
  };
  const std::shared_ptr<Seen> seen_ = std::make_shared<Seen>();
  bool told_ = false;
  std::optional<image::QuiesceHandlers> quiesce_;
  std::shared_ptr<std::function<void(int)>> owed_;  ///< to the present snapshotter; null: nothing
  bool closing_ = false, closed_ = false;           ///< as its owner asked, and was told
  bool lock_kept_ = false;
  const std::shared_ptr<bool> gone_ = std::make_shared<bool>(false);  ///< in the cluster
  std::optional<time_point> unheard_since_;                           ///< since a look when others were answered
  std::shared_ptr<std::optional<time_point>> asks_since_ = std::make_shared<std::optional<time_point>>();
};

/// Plays nbd's session, as far as the control side and the kernel see it.
class FakeLink final : public device::Link {
 public:
  FakeLink(World& world, image::BlockImage& image, device::ServeOptions options, std::function<void()> on_stopped);
  ~FakeLink() override;
  State state() const override { return state_; }
  int error() const override { return error_; }
  void shut() override;
  void hold() override { stop(State::held, ESHUTDOWN); }
  task<Waited> ended(Until until) override { return ended_.wait(until); }
  task<Waited> idle(Until until) override { return idle_.wait(until); }
  task<Waited> drain(Until until) override;
  void undrain() override;
  task<result<Fd>> hand_over(Until until) override;
  std::uint64_t in_flight() const override { return ops_.size() + owed_.size(); }
  duration oldest() const override { return ops_.empty() ? duration::zero() : world_.loop().clock.now() - busy_since_; }

  bool fails_flushes() const override;
  void accept_loss() override;
  device::Figures figures() const override { return figures_; }

  void take(std::uint32_t device, const KernelRequest& request);
  void stop(State state, int error);
  /// A link that is ending takes everything, and answers nothing.
  bool reads() const { return state_ != State::serving || !draining_; }
  void seen_dead() { ended_.set(); }
  bool over() const { return state_ != State::serving && ended_.is_set(); }
  /// Whether it was shut before everything that it had read was answered.
  bool shut_early_at(time_point when) const { return shut_early_ == when; }
  /// Stores it in its keeper from now on, with its books.
  void keep();
  const World& process() const { return world_; }
  bool kept() const { return kept_ && assigned && state_ == State::serving; }
  const std::vector<Reply>& owed() const { return owed_; }
  /// Takes over replies that the predecessor did not send.
  void owe(std::vector<Reply> replies);
  /// Returns the image's client, if it is an image.
  const FakeOpened* opened() const { return dynamic_cast<const FakeOpened*>(&image_); }
  bool tombstone() const { return opened() == nullptr; }
  const int serial;
  const std::string image_id;
  const std::uint64_t visits;             ///< visits of its image when the link was made, or kNoVisit
  std::optional<std::uint32_t> assigned;  ///< the device that has its other end
  bool resumed = false;                   ///< that device had it all the time

 private:
  static void completed(image::Op* op, int result) noexcept;
  /// Begins a visit of the image, which this node may write from now on.
  static std::uint64_t begin_visit(World& world, const image::BlockImage& image);
  void look_whom_it_is_taken_from();
  void end(SessionOp& op, int result);
  bool busy() const { return !ops_.empty() || !owed_.empty(); }
  void send_later(std::uint64_t request);
  void send(std::uint64_t request);
  void note_idle();
  World& world_;
  image::BlockImage& image_;
  device::ServeOptions options_;
  const std::unique_ptr<nbd::LostCache> lost_cache_;
  std::function<void()> on_stopped_;
  State state_ = State::serving;
  int error_ = 0;
  bool draining_ = false, kept_ = false;
  std::list<SessionOp> ops_;
  std::vector<Reply> owed_;  ///< answered, and not sent
  device::Figures figures_;  ///< only the number of requests
  time_point busy_since_{};
  std::optional<time_point> shut_early_;
  Event ended_, idle_;
  std::shared_ptr<Event> drained_;  ///< set by the end of the present drain
};

std::unique_ptr<image::Clusters> make_clusters(World& world);
std::unique_ptr<device::Devices> make_devices(World& world);
std::unique_ptr<device::KernelClient> make_kernel_client(World& world);
std::unique_ptr<host::Mounts> make_mounts(World& world);
std::unique_ptr<host::Daemons> make_daemons(World& world);
std::unique_ptr<host::Filesystems> make_filesystems(World& world);
std::unique_ptr<host::Luks> make_luks(World& world);
std::unique_ptr<host::Fscrypt> make_fscrypt(World& world);
std::unique_ptr<kms::Kms> make_kms(World& world);
std::unique_ptr<volume::RecordStore> make_store(World& world);

// Helpers that find what lies below a path, a mount or a mapping.
/// Returns the index of a device, or of the device below a mapping, in the world's mounts and calls.
std::uint32_t index_of(const World& world, const std::string& path);
bool is_mapping(const std::string& path);
/// Returns the device of a mounted filesystem; nothing for one without a device.
std::optional<std::uint32_t> device_below(const host::Mount& mount);
/// Returns the device that is mounted there.
std::optional<std::uint32_t> mounted_device(const World& world, const std::string& target);
bool mounted_elsewhere(const World& world, std::uint32_t index, const std::string& target);
FakeImage* image_of(World& world, const std::string& device);
/// Returns the bytes that a path of a device or mapping has.
std::uint64_t bytes_of(const KernelDevice& on);
/// Requires a link. Without hazards no link ends in the middle of anything: then it was the plan's mistake.
void needs_link(World& world, const std::string& device);
/// Whether a write through the device would be stored.
bool takes_writes(const World& world, const KernelDevice& on);
Error gone(const std::string& device);
/// Whether a filesystem of the device is mounted with the flag "ro".
bool mounted_read_only(const World& world, std::uint32_t index);
/// Begins a format on the device: a death in the middle leaves extents and no signature.
void begin_format(World& world, const std::string& device);

}  // namespace corbd::test
