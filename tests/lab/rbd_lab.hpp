// A control thread and a real cluster for the lab tests of the rbd room, and a second client that does what an
// administrator or another node would do.
#pragma once

#include <rados/librados.h>
#include <rbd/librbd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <stdexcept>

#include "corbd/rbd/clusters.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

namespace corbd::lab {

using namespace std::chrono_literals;

inline std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

inline image::Access access() {
  return {"lab", {env("CORBD_LAB_MON")}, env("CORBD_LAB_USER"), Secret(env("CORBD_LAB_KEY"))};
}
constexpr std::int64_t kBreakTime = 3'000'000'000;  ///< for break_dead_lock
inline std::string pool_name() { return env("CORBD_LAB_POOL"); }

/// An agent: the room under test, with incarnation files in that folder, or in one of its own.
class Agent {
 public:
  explicit Agent(std::string incarnations = {}, std::size_t images_per_connection = 32,
                 bool predecessor_running = false, std::chrono::milliseconds looks_every = 5min)
      : incarnations_(incarnations.empty() ? own_.path() : std::move(incarnations)),
        clock_(make_real_clock(io_.get_executor())),
        pool_(io_.get_executor(), *clock_, 8) {
    rbd::Config config;
    config.incarnations_dir = incarnations_;
    config.images_per_connection = images_per_connection;
    config.predecessor_running = predecessor_running;
    config.looks_every = looks_every;
    config.mon_timeout = 5s;
    clusters = rbd::make_clusters(io_.get_executor(), *clock_, pool_, config);
  }
  /// Waits for the images that a test has dropped: librbd calls back into an open one, after this object's end too.
  ~Agent() { static_cast<void>(run(clusters->shutdown(in(20s)))); }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  template <class T>
  T run(task<T> work) {
    std::optional<T> out;
    asio::co_spawn(io_, std::move(work), [&](std::exception_ptr, T value) { out.emplace(std::move(value)); });
    while (!out) io_.run_one();
    return std::move(*out);
  }
  void run_for(std::chrono::milliseconds time) {
    io_.restart();
    io_.run_for(time);
    io_.restart();
  }
  Until in(std::chrono::milliseconds time) const { return {clock_->now() + time, nullptr}; }

  /// Resolves, fences and opens, as the planner does.
  result<std::unique_ptr<image::Image>> open(const std::string& name, image::OpenOptions options = {}) {
    auto found = run(clusters->resolve(access(), {pool_name(), "", name}, in(20s)));
    if (!found) return found.error();
    if (auto fenced = run(clusters->fence_dead(access(), in(20s))); !fenced) return fenced.error();
    return run(clusters->open(access(), found->key, options, in(20s)));
  }
  result<image::Ownership> ownership(image::Image& image) { return run(image.ownership(in(20s))); }
  void close(image::Image& image) { CHECK(run(image.close(in(20s)))); }
  void close(std::unique_ptr<image::Image> image) { close(*image); }
  asio::io_context& io() { return io_; }
  std::size_t incarnation_files() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(incarnations_))
      count += entry.path().extension() == ".json" ? 1 : 0;
    return count;
  }

 private:
  const test::Folder own_;
  const std::string incarnations_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> alive_{io_.get_executor()};
  std::unique_ptr<Clock> clock_;
  BlockingPool pool_;

 public:
  std::unique_ptr<image::Clusters> clusters;
};

/// An operation and the wait for it, from the test's thread.
class Wait final : public image::Op {
 public:
  Wait() { done = &ended; }
  int get() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return result_.has_value(); });
    return *result_;
  }

 private:
  static void ended(image::Op* op, int r) noexcept {
    auto* self = static_cast<Wait*>(op);
    const std::lock_guard lock(self->mutex_);
    self->result_ = r;
    self->changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<int> result_;
};

inline std::vector<std::byte> pattern(std::size_t length, unsigned seed) {
  std::vector<std::byte> bytes(length);
  for (auto& one : bytes) one = static_cast<std::byte>((seed = seed * 1664525U + 1013904223U) >> 24);
  return bytes;
}

inline int write(image::Image& image, std::uint64_t offset, const std::vector<std::byte>& bytes) {
  Wait wait;
  image.write(wait, offset, bytes);
  return wait.get();
}

inline std::vector<std::byte> read(image::Image& image, std::uint64_t offset, std::size_t length) {
  std::vector<std::byte> bytes(length, std::byte{0x55});
  Wait wait;
  image.read(wait, offset, bytes);
  if (const int r = wait.get(); r != 0) throw std::runtime_error("read: " + std::to_string(r));
  return bytes;
}

/// Another client of the cluster.
class Admin {
 public:
  Admin() {
    const auto to = access();
    check(rados_create2(&cluster, "ceph", ("client." + to.user).c_str(), 0));
    rados_conf_set(cluster, "mon_host", to.monitors.front().c_str());
    rados_conf_set(cluster, "key", to.key.reveal().data());
    rados_conf_set(cluster, "rbd_cache", "false");
    rados_conf_set(cluster, "log_to_stderr", "false");
    check(rados_connect(cluster));
    check(rados_ioctx_create(cluster, pool_name().c_str(), &io));
  }
  ~Admin() {
    rados_ioctx_destroy(io);
    rados_shutdown(cluster);
  }
  Admin(const Admin&) = delete;
  Admin& operator=(const Admin&) = delete;

  /// A fresh image of that name. 61: layering, exclusive-lock, object-map, fast-diff, deep-flatten.
  void create(const std::string& name, std::uint64_t size = 64 << 20, std::uint64_t features = 61) {
    remove(name);
    int order = 22;
    check(rbd_create2(io, name.c_str(), size, features, &order));
  }
  void remove(const std::string& name) {
    const int r = rbd_remove(io, name.c_str());
    if (r != -ENOENT) check(r);
  }
  rbd_image_t open(const std::string& name) {
    rbd_image_t image = nullptr;
    check(rbd_open(io, name.c_str(), &image, nullptr));
    return image;
  }
  void set_metadata(const std::string& name, const char* key, const char* value) {
    rbd_image_t image = open(name);
    check(rbd_metadata_set(image, key, value));
    check(rbd_close(image));
  }
  std::string metadata(const std::string& name, const std::string& key) {
    std::string value(1024, '\0');
    std::size_t length = value.size();
    rbd_image_t image = nullptr;
    check(rbd_open_read_only(io, name.c_str(), &image, nullptr));
    check(rbd_metadata_get(image, key.c_str(), value.data(), &length));
    check(rbd_close(image));
    return value.c_str();
  }
  std::uint64_t features(const std::string& name) {
    std::uint64_t bits = 0;
    rbd_image_t image = open(name);
    check(rbd_get_features(image, &bits));
    check(rbd_close(image));
    return bits;
  }
  /// Another client's persistent cache says in the header that it has the newest writes, as librbd's does
  /// (librbd/cache/pwl/InitRequest.cc).
  void set_dirty_cache(const std::string& name, bool dirty) {
    // A length of four bytes, then the image's ID.
    std::array<char, 128> id{};
    const int size = rados_exec(io, ("rbd_id." + name).c_str(), "rbd", "get_id", nullptr, 0, id.data(), id.size());
    check(size);
    const std::string header = "rbd_header." + std::string(id.data() + 4, static_cast<std::size_t>(size) - 4);
    // The new bits of those that the mask names.
    const std::array<std::uint64_t, 2> in{dirty ? image::kDirtyCache : 0, image::kDirtyCache};
    check(rados_exec(io, header.c_str(), "rbd", "set_features", reinterpret_cast<const char*>(in.data()), sizeof in,
                     nullptr, 0));
  }
  std::vector<std::byte> read(const std::string& name, std::uint64_t offset, std::size_t length) {
    std::vector<std::byte> bytes(length);
    rbd_image_t image = nullptr;
    check(rbd_open_read_only(io, name.c_str(), &image, nullptr));
    check(static_cast<int>(rbd_read(image, offset, length, reinterpret_cast<char*>(bytes.data()))));
    check(rbd_close(image));
    return bytes;
  }
  static void check(int r) {
    if (r < 0) throw std::runtime_error("admin: " + std::string(std::strerror(-r)));
  }

  rados_t cluster = nullptr;
  rados_ioctx_t io = nullptr;
};

/// The cluster's administrator, who has every right.
class Administrator {
 public:
  Administrator() {
    Admin::check(rados_create2(&cluster_, "ceph", "client.admin", 0));
    Admin::check(rados_conf_read_file(cluster_, env("CORBD_LAB_CONF").c_str()));
    Admin::check(rados_connect(cluster_));
  }
  ~Administrator() { rados_shutdown(cluster_); }
  Administrator(const Administrator&) = delete;
  Administrator& operator=(const Administrator&) = delete;

  /// Gives a command to the monitors, and returns what they say.
  std::string tell(const boost::json::object& words) {
    const std::string line = boost::json::serialize(words);
    const char* lines[] = {line.c_str()};
    char* out = nullptr;
    std::size_t size = 0;
    Admin::check(rados_mon_command(cluster_, lines, 1, nullptr, 0, &out, &size, nullptr, nullptr));
    const std::string text(out == nullptr ? "" : out, size);
    rados_buffer_free(out);
    return text;
  }

 private:
  rados_t cluster_ = nullptr;
};

/// Another process of this program, in which the hidden test of that tag runs with its files in `dir`. It says that it
/// is ready by a file of that name there.
class Child {
 public:
  Child(const std::string& dir, const char* tag) {
    const std::string ready = dir + "/ready";
    ::setenv("CORBD_LAB_CHILD_DIR", dir.c_str(), 1);
    std::filesystem::remove(ready);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execl("/proc/self/exe", "lab_rbd", tag, nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 1200 && !std::filesystem::exists(ready); ++i) ::usleep(100000);
    if (!std::filesystem::exists(ready)) throw std::runtime_error("the child did not become ready");
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace corbd::lab
