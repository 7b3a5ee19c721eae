#include "netlink_thread.hpp"

#include <pthread.h>

#include <algorithm>

#include "corbd/core/expect.hpp"
#include "corbd/core/log.hpp"

namespace corbd::nbd {

NetlinkThread::NetlinkThread(Counters& counters, std::function<void(std::uint32_t)> dead)
    : counters_(counters), dead_(std::move(dead)), work_(io_.get_executor()), thread_([this] {
        this_thread_is = ThreadKind::pool;
        io_.run();
      }) {
  pthread_setname_np(thread_.native_handle(), "corbd-netlink");
}

NetlinkThread::~NetlinkThread() {
  io_.stop();
  thread_.join();
  news_.release();  // the descriptor is libnl's
}

void NetlinkThread::hear() {
  if (dead_links_) return;
  auto netlink = Netlink::open();
  if (!netlink) return;
  if (auto hears = netlink->hear_dead_links(); !hears) {
    log::warning("nbd.link_events_lost", {{"error", hears.error().text}});
    return;
  }
  dead_links_.emplace(std::move(*netlink));
  news_.assign(dead_links_->fd());
  wait();
}

void NetlinkThread::wait() {
  news_.async_wait(asio::posix::descriptor_base::wait_read, [this](boost::system::error_code failed) {
    if (failed) return;
    auto dead = dead_links_->read_dead_links();
    std::ranges::sort(dead);
    const auto again = std::ranges::unique(dead);
    dead.erase(again.begin(), again.end());
    for (const std::uint32_t index : dead) {
      counters_.add(device::Count::links_dead);
      log::info("nbd.link_dead", {{"device", device::path(index)}});
      dead_(index);
    }
    wait();
  });
}

}  // namespace corbd::nbd
