// The thread that speaks netlink: it runs commands one after another, and reads the news of dead links between them.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <optional>
#include <thread>

#include "counters.hpp"
#include "netlink.hpp"

namespace corbd::nbd {

class NetlinkThread {
 public:
  /// `dead` is called on the netlink thread with the index of every device whose link the kernel reports dead.
  NetlinkThread(Counters& counters, std::function<void(std::uint32_t)> dead);
  /// Waits for the command under way, and drops those behind it.
  ~NetlinkThread();
  NetlinkThread(const NetlinkThread&) = delete;
  NetlinkThread& operator=(const NetlinkThread&) = delete;

  /// Callable from any thread.
  template <class Command>
  void post(Command command) {
    asio::post(io_, std::move(command));
  }
  /// A command that runs on this thread before every other one, because the driver may have been loaded since.
  void hear();

 private:
  void wait();

  Counters& counters_;
  const std::function<void(std::uint32_t)> dead_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::optional<Netlink> dead_links_;
  asio::posix::stream_descriptor news_{io_};
  std::thread thread_;
};

}  // namespace corbd::nbd
