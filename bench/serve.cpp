#include "serve.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/rbd/clusters.hpp"
#include "io_loops.hpp"
#include "link.hpp"
#include "support/folder.hpp"
#include "support/newstyle.hpp"

namespace corbd::bench {
namespace {

std::string env(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set: see scripts/lab/ceph env");
  return value;
}

Fd listen_on(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) throw std::runtime_error(path + " is too long for a socket");
  std::memcpy(address.sun_path, path.c_str(), path.size());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), 8) != 0)
    throw std::runtime_error(path + ": " + std::strerror(errno));
  return socket;
}

/// One process of the agent's: control thread, io threads, librbd.
class Server {
 public:
  explicit Server(unsigned io_threads) : loops_(io_threads, 512u << 20, 32u << 20) {}
  int run(const std::string& folder, const std::vector<std::string>& names) {
    for (const auto& name : names) images_.push_back(open(name));
    for (std::size_t i = 0; i < names.size(); ++i) {
      // Ends with the process: accept(2) has no other end.
      std::thread([this, &image = *images_[i], socket = listen_on(folder + "/" + names[i] + ".sock")] {
        accept_all(image, socket.get());
      }).detach();
    }
    std::puts("serving");
    std::fflush(stdout);
    asio::signal_set ends(control_, SIGTERM, SIGINT);
    ends.async_wait([this](boost::system::error_code, int) { control_.stop(); });
    control_.restart();
    control_.run();
    for (auto& link : links_) link->shut();
    for (auto& link : links_) task(link->idle({}));
    links_.clear();
    for (auto& image : images_) task(image->close({}));
    std::_Exit(0);
  }

 private:
  template <class T>
  T task(corbd::task<T> work) {
    std::optional<T> out;
    asio::co_spawn(control_, std::move(work), [&](std::exception_ptr, T value) { out.emplace(std::move(value)); });
    control_.restart();
    while (!out) control_.run_one();
    return std::move(*out);
  }
  template <class T>
  T must(result<T> found) {
    if (!found) throw std::runtime_error(found.error().text);
    return std::move(*found);
  }
  std::unique_ptr<image::Image> open(const std::string& name) {
    const image::Access access{"lab", {env("CORBD_LAB_MON")}, env("CORBD_LAB_USER"), Secret(env("CORBD_LAB_KEY"))};
    const auto found = must(task(clusters_->resolve(access, {env("CORBD_LAB_POOL"), "", name}, {})));
    if (auto fenced = task(clusters_->fence_dead(access, {})); !fenced) throw std::runtime_error(fenced.error().text);
    auto image = must(task(clusters_->open(access, found.key, {}, {})));
    if (auto locked = task(image->acquire_lock({})); !locked) throw std::runtime_error(locked.error().text);
    return image;
  }
  void accept_all(image::Image& image, int listener) {
    for (;;) {
      Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.get() < 0) return;
      nbd::enlarge_send_buffer(socket.get());
      if (!test::newstyle_handshake(socket.get(), image.size())) continue;
      asio::post(control_, [this, &image, fd = socket.release()] {
        links_.push_back(
            nbd::serve_socket(control_.get_executor(), *clock_, loops_.next(), image, Fd(fd), counters_, false, [] {}));
      });
    }
  }

  asio::io_context control_;
  asio::executor_work_guard<asio::io_context::executor_type> alive_{control_.get_executor()};
  std::unique_ptr<Clock> clock_ = make_real_clock(control_.get_executor());
  BlockingPool pool_{control_.get_executor(), *clock_, 4};
  const test::Folder incarnations_;
  std::unique_ptr<image::Clusters> clusters_ =
      rbd::make_clusters(control_.get_executor(), *clock_, pool_, {.incarnations_dir = incarnations_.path()});
  nbd::IoLoops loops_;
  nbd::Counters counters_;
  std::vector<std::unique_ptr<image::Image>> images_;
  std::vector<std::unique_ptr<device::Link>> links_;
};

}  // namespace

int serve_images(const std::string& folder, const std::vector<std::string>& images, unsigned io_threads) {
  return Server(io_threads).run(folder, images);
}

}  // namespace corbd::bench
